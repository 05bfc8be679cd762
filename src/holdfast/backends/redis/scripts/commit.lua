-- One commit: first every condition, then every change. Answers "" or the kind of the condition that does not hold
-- and the number of the item that has it.
local records, runs, blobs, rows, require_records, require_rows, delete_records, delete_runs, delete_blobs, position,
  claims, shard, shards = unpack(asked, 1, 13)

local function tail_of(log)
  local last = redis.call("ZREVRANGE", BOUNDS .. log, 0, 0)[1]
  if not last then
    return 0
  end
  local first, length = bounds_of(last)
  return first + length
end

-- Conditions, in the order in which the memory backend has them.

if position then
  if position <= tonumber(redis.call("GET", FLOOR) or "0") then
    return { "late", 0 }
  end
end
local claimed = {}
for at, claim in ipairs(claims) do
  claimed[claim[1]] = true
  if claim[2] <= tonumber(redis.call("HGET", BARRED, claim[1]) or "0") then
    return { "late", at }
  end
end
local versions = {} -- of the rows that are written, by space and place
for at, row in ipairs(rows) do
  local space, place, _, _, expect, was = unpack(row)
  local version, value = row_of(space, place)
  versions[space .. ":" .. place] = version
  if (expect ~= -1 and expect ~= version) or (was and was ~= value) then
    return { "row", at }
  end
end
for at, run in ipairs(runs) do
  local log, first, _, _, tail, follows = unpack(run)
  if not follows then
    if tail_of(log) ~= tail then
      return { "run", at }
    end
    if first < tail and redis.call("HEXISTS", RUNS .. log, digits(first)) == 0 then
      return { "run", at }
    end
  end
end
for at, required in ipairs(require_rows) do
  if row_of(required[1], required[2]) ~= required[3] then
    return { "required row", at }
  end
end
for at, required in ipairs(require_records) do
  local stored = redis.call("HGET", RECORDS, required[1])
  if not stored then
    return { "require", at }
  end
  local _, _, _, from = split(stored)
  if string.sub(stored, from, from + #required[2] - 1) ~= required[2] then
    return { "require", at }
  end
end
local numbers = {} -- of the sessions that are written to; false if they have none yet
for at, record in ipairs(records) do
  local id, session, sequence, _, replaces = unpack(record)
  local stored = redis.call("HGET", RECORDS, id)
  if replaces then
    if not stored then
      return { "replace", at }
    end
    local _, _, _, from = split(stored)
    if string.sub(stored, from) ~= replaces then
      return { "replace", at }
    end
  else
    local number = redis.call("HGET", NUMBERS, session)
    numbers[session] = number
    if stored or (number and redis.call("ZCOUNT", SESSION .. number, sequence, sequence) > 0) then
      return { "record", at }
    end
    if shards > 1 and not claimed[id] and redis.call("HEXISTS", ELSEWHERE, id) == 1 then
      return { "elsewhere", at }
    end
  end
end

-- Changes.

if #records + #runs + #blobs + #rows + #delete_records + #delete_runs + #delete_blobs == 0 then
  -- WAIT speaks of what its connection wrote last: who commits nothing, to hear whether replicas have what is here, writes
  -- this.
  redis.call("SET", base .. ":confirmed", 1)
end

local function put_run(log, first, length, data)
  redis.call("ZADD", BOUNDS .. log, first, digits(first) .. ":" .. digits(length))
  redis.call("HSET", RUNS .. log, digits(first), data)
end

for _, run in ipairs(runs) do
  local log, first, length, data, tail = unpack(run)
  if first < tail then
    for _, bounds in ipairs(redis.call("ZRANGEBYSCORE", BOUNDS .. log, first, "+inf")) do
      redis.call("HDEL", RUNS .. log, digits((bounds_of(bounds))))
    end
    redis.call("ZREMRANGEBYSCORE", BOUNDS .. log, first, "+inf")
  elseif first == 0 then
    redis.call("ZADD", LOGS, log, log)
  end
  put_run(log, first, length, data)
end

if #blobs > 0 then
  local time = redis.call("TIME")
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  now = now - now % shards + shard
  for _, blob in ipairs(blobs) do
    local hash, data = unpack(blob)
    local before = redis.call("HGET", WRITTEN, hash)
    local written = now
    if before then
      -- Later than before, whatever the clock says: collection must see that it was written again.
      written = math.max(now, tonumber(before) + shards)
    else
      redis.call("ZADD", HASHES, 0, hash)
    end
    redis.call("HSET", WRITTEN, hash, digits(written))
    if redis.call("HGET", BLOBS, hash) ~= data then
      redis.call("HSET", BLOBS, hash, data)
    end
  end
end

for _, row in ipairs(rows) do
  local space, place, of_tree, value = unpack(row)
  local name = space .. ":" .. place
  local version = versions[name]
  versions[name] = value and version + 1 or 0
  if value then
    if version == 0 then
      redis.call("SADD", SPACES, space)
      redis.call("ZADD", PLACES .. space, 0, place)
      redis.call("ZADD", OF_TREE .. space, 0, of_tree)
    end
    redis.call("HSET", ROWS .. space, place, digits(version + 1) .. ":" .. value)
  elseif version > 0 then
    redis.call("HDEL", ROWS .. space, place)
    redis.call("ZREM", PLACES .. space, place)
    redis.call("ZREM", OF_TREE .. space, of_tree)
  end
end

local is_news = false
for _, record in ipairs(records) do
  local id, session, sequence, data, replaces, spans, due = unpack(record)
  if due then
    redis.call("ZADD", DUE, due, id)
  elseif replaces then
    redis.call("ZREM", DUE, id)
  end
  if replaces then
    local stored = redis.call("HGET", RECORDS, id)
    local _, _, _, from = split(stored)
    redis.call("HSET", RECORDS, id, string.sub(stored, 1, from - 1) .. data)
  else
    local number = numbers[session]
    if not number then
      number = digits(redis.call("INCR", base .. ":counted"))
      numbers[session] = number
      redis.call("HSET", NUMBERS, session, number)
      redis.call("HSET", NAMES, number, session)
    end
    local here = position
    if position then
      position = position + 1
    else
      here = redis.call("INCR", LAST)
    end
    redis.call("HSET", RECORDS, id, number .. ":" .. digits(sequence) .. ":" .. digits(here) .. spans .. ":" .. data)
    is_news = true
    redis.call("ZADD", IDS, 0, id)
    redis.call("ZADD", ORDER, here, id)
    redis.call("ZADD", SESSION .. number, sequence, id)
  end
end

if is_news and shards == 1 then -- else they are visible once they are decided
  -- A hint for who follows. A user who has no right to it (docs/redis.md) can save all the same.
  redis.pcall("SPUBLISH", base .. ":news", "")
end

for _, deleted in ipairs(delete_records) do
  local id, data = unpack(deleted)
  local stored = redis.call("HGET", RECORDS, id)
  if stored then
    local number, _, _, from = split(stored)
    if string.sub(stored, from) == data then
      redis.call("HDEL", RECORDS, id)
      redis.call("ZREM", IDS, id)
      redis.call("ZREM", ORDER, id)
      redis.call("ZREM", DUE, id)
      redis.call("ZREM", SESSION .. number, id)
      if redis.call("EXISTS", SESSION .. number) == 0 then
        redis.call("HDEL", NUMBERS, redis.call("HGET", NAMES, number))
        redis.call("HDEL", NAMES, number)
      end
    end
  end
end

for _, deleted in ipairs(delete_runs) do
  local log, first, length, pieces = unpack(deleted)
  if redis.call("ZREM", BOUNDS .. log, digits(first) .. ":" .. digits(length)) == 1 then
    redis.call("HDEL", RUNS .. log, digits(first))
    for _, piece in ipairs(pieces) do
      put_run(log, unpack(piece))
    end
    if redis.call("EXISTS", BOUNDS .. log) == 0 then
      redis.call("ZREM", LOGS, log)
    end
  end
end

for _, deleted in ipairs(delete_blobs) do
  local hash, before = unpack(deleted)
  local written = redis.call("HGET", WRITTEN, hash)
  if written and tonumber(written) < before then
    redis.call("HDEL", BLOBS, hash)
    redis.call("HDEL", WRITTEN, hash)
    redis.call("ZREM", HASHES, hash)
  end
end

return { "", 0 }
