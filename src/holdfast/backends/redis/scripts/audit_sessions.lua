-- Of the sessions from one number of them to another: {how many entries of their orders name no record, the sessions
-- whose order is missing or of another kind, whether there are more}.
local first, last = unpack(asked)
local names = call("HKEYS", NAMES)
local left, lost = 0, {}
for at = first, math.min(last, #names) do
  local ids = redis.pcall("ZRANGE", SESSION .. names[at], 0, -1)
  if ids.err or #ids == 0 then
    lost[#lost + 1] = call("HGET", NAMES, names[at])
  else
    for _, id in ipairs(ids) do
      left = left + 1 - call("HEXISTS", RECORDS, id)
    end
  end
end
return { left, lost, last < #names and 1 or 0 }
