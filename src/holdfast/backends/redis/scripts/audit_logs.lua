-- Of the logs from a bound on: how many runs are named and missing, then where to go on.
local from, limit = unpack(asked)
local missing = 0
local logs = call("ZRANGEBYSCORE", LOGS, from, "+inf", "LIMIT", 0, limit)
for _, log in ipairs(logs) do
  local named = redis.pcall("ZCOUNT", BOUNDS .. log, "-inf", "+inf")
  local found = redis.pcall("HKEYS", RUNS .. log)
  if type(named) ~= "number" or found.err then
    missing = missing + 1
  else
    missing = missing + math.abs(named - #found) + (named == 0 and 1 or 0)
  end
end
return { missing, #logs == limit and logs[limit] }
