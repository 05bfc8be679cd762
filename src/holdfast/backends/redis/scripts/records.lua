-- The records of these ids: {stored, session} of each; for one that is not here, the shard it is in, or false.
local found = {}
for at, id in ipairs(asked[1]) do
  local stored = redis.call("HGET", RECORDS, id)
  if stored then
    found[at] = { stored, redis.call("HGET", NAMES, (split(stored))) }
  else
    found[at] = redis.call("HGET", ELSEWHERE, id)
  end
end
return found
