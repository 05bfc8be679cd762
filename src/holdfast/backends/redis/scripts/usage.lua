-- One page of one kind of thing: {count, bytes, memory of keys, where to go on}.
local kind, from, limit = unpack(asked)
local function memory(...)
  local sum = 0
  for _, key in ipairs({ ... }) do
    sum = sum + (redis.call("MEMORY", "USAGE", key) or 0)
  end
  return sum
end
local count, bytes, held, last = 0, 0, 0, false
if kind == "record" then
  if from == "-" then
    held = memory(RECORDS, IDS, ORDER, LAST, FLOOR, ELSEWHERE, BARRED, NUMBERS, NAMES)
  end
  local ids = redis.call("ZRANGEBYLEX", IDS, from, "+", "LIMIT", 0, limit)
  for _, id in ipairs(ids) do
    local number, sequence, position, at = split(redis.call("HGET", RECORDS, id))
    bytes = bytes + redis.call("HSTRLEN", RECORDS, id) - at + 1
    if sequence == redis.call("ZRANGE", SESSION .. number, 0, 0, "WITHSCORES")[2] then
      held = held + memory(SESSION .. number)
    end
  end
  count, last = #ids, #ids == limit and ids[limit]
elseif kind == "run" then
  if from == "-inf" then
    held = memory(LOGS)
  end
  local logs = redis.call("ZRANGEBYSCORE", LOGS, from, "+inf", "LIMIT", 0, limit)
  for _, log in ipairs(logs) do
    held = held + memory(BOUNDS .. log, RUNS .. log)
    for _, first in ipairs(redis.call("HKEYS", RUNS .. log)) do
      count = count + 1
      bytes = bytes + redis.call("HSTRLEN", RUNS .. log, first)
    end
  end
  last = #logs == limit and logs[limit]
elseif kind == "blob" then
  if from == "-" then
    held = memory(BLOBS, WRITTEN, HASHES)
  end
  local hashes = redis.call("ZRANGEBYLEX", HASHES, from, "+", "LIMIT", 0, limit)
  for _, hash in ipairs(hashes) do
    bytes = bytes + redis.call("HSTRLEN", BLOBS, hash)
  end
  count, last = #hashes, #hashes == limit and hashes[limit]
else -- the rows of the space of that name, after "row:"
  local space = string.sub(kind, 5)
  if from == "-" then
    held = memory(ROWS .. space, PLACES .. space, OF_TREE .. space)
  end
  local places = redis.call("ZRANGEBYLEX", PLACES .. space, from, "+", "LIMIT", 0, limit)
  for _, place in ipairs(places) do
    local _, value = row_of(space, place)
    bytes = bytes + #value
  end
  count, last = #places, #places == limit and places[limit]
end
return { count, bytes, held, last }
