-- In the shard that a claim leads to: 1 if the record is here; otherwise 0, and commits by that claim are refused.
local id, claim = unpack(asked)
check_store(base)
if redis.call("HEXISTS", RECORDS, id) == 1 then
  return 1
end
if tonumber(claim) > tonumber(redis.call("HGET", BARRED, id) or "0") then
  redis.call("HSET", BARRED, id, claim)
end
return 0
