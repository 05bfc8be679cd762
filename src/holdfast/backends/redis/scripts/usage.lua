-- One page of one kind of thing: {count, bytes, where to go on}.
local kind, from, limit = unpack(asked)
local count, bytes, last = 0, 0, false
if kind == "record" then
  local ids = redis.call("ZRANGEBYLEX", IDS, from, "+", "LIMIT", 0, limit)
  for _, id in ipairs(ids) do
    local _, _, _, at = split(redis.call("HGET", RECORDS, id) or "")
    if at then -- else it is damaged: `verify` says so
      bytes = bytes + redis.call("HSTRLEN", RECORDS, id) - at + 1
    end
  end
  count, last = #ids, #ids == limit and ids[limit]
elseif kind == "run" then
  local logs = redis.call("ZRANGEBYSCORE", LOGS, from, "+inf", "LIMIT", 0, limit)
  for _, log in ipairs(logs) do
    for _, first in ipairs(redis.call("HKEYS", RUNS .. log)) do
      count = count + 1
      bytes = bytes + redis.call("HSTRLEN", RUNS .. log, first)
    end
  end
  last = #logs == limit and logs[limit]
elseif kind == "blob" then
  local hashes = redis.call("ZRANGEBYLEX", HASHES, from, "+", "LIMIT", 0, limit)
  for _, hash in ipairs(hashes) do
    bytes = bytes + redis.call("HSTRLEN", BLOBS, hash)
  end
  count, last = #hashes, #hashes == limit and hashes[limit]
else -- the rows of the space of that name, after "row:"
  local space = string.sub(kind, 5)
  local places = redis.call("ZRANGEBYLEX", PLACES .. space, from, "+", "LIMIT", 0, limit)
  for _, place in ipairs(places) do
    local _, value = row_of(space, place)
    bytes = bytes + #(value or "")
  end
  count, last = #places, #places == limit and places[limit]
end
return { count, bytes, last }
