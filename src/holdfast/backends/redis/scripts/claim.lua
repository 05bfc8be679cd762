-- In an id's own shard: notes that its record is to be in another one. Answers {"taken"} if it is here, {"here", claim}
-- if the note leads to that shard now, and {"there", shard, claim} if it leads to a third one. With `instead` of that
-- answer's claim, the note is changed.
local id, shard, instead = unpack(asked)
check_store(base)
if redis.call("HEXISTS", RECORDS, id) == 1 then
  return { "taken" }
end
local noted, claim = string.match(redis.call("HGET", ELSEWHERE, id) or "", "^(%d+):(%d+)$")
if noted == shard then
  return { "here", claim }
end
if noted and claim ~= instead then
  return { "there", noted, claim }
end
claim = digits(tonumber(claim or "0") + 1)
redis.call("HSET", ELSEWHERE, id, shard .. ":" .. claim)
return { "here", claim }
