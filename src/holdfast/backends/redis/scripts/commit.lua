-- Commits of one shard, one after the other, each as a whole or not at all: first every condition, then whether every
-- change can be made, then the changes, rows after records. asked is {commits, shard, number of shards}.
-- Answers of each commit: 0 if it was carried out; {kind of the condition that does not hold, number of its item}; or
-- the error that refused it.
local commits, shard, shards = unpack(asked)
local CONFIRMED = base .. ":confirmed"

check_store(base, shards == 1 and LAST or nil)

local function tail_of(log)
  local last = call("ZREVRANGE", BOUNDS .. log, 0, 0)[1]
  if not last then
    return 0
  end
  local first, length = bounds_of(last)
  return first + length
end

-- Conditions, in the order in which the memory backend has them. They answer the first one that does not hold, or nil.

local function find_late(position, claims)
  if position and position <= tonumber(call("GET", FLOOR) or "0") then
    return { "late", 0 }
  end
  for at, claim in ipairs(claims) do
    if claim[2] <= tonumber(call("HGET", BARRED, claim[1]) or "0") then
      return { "late", at }
    end
  end
end

local function find_changed_row(rows, versions)
  for at, row in ipairs(rows) do
    local space, place, _, _, expect, was = unpack(row)
    local version, value = row_of(space, place)
    versions[space .. ":" .. place] = version
    if (expect ~= -1 and expect ~= version) or (was and was ~= value) then
      return { "row", at }
    end
  end
end

local function find_other_tail(runs)
  for at, run in ipairs(runs) do
    local log, first, _, _, tail, follows = unpack(run)
    if not follows then
      if tail_of(log) ~= tail or (first < tail and call("HEXISTS", RUNS .. log, digits(first)) == 0) then
        return { "run", at }
      end
    end
  end
end

local function find_missing(require_rows, require_records)
  for at, required in ipairs(require_rows) do
    if row_of(required[1], required[2]) ~= required[3] then
      return { "required row", at }
    end
  end
  for at, required in ipairs(require_records) do
    local stored = call("HGET", RECORDS, required[1])
    local from = stored and select(4, split(stored))
    if not stored or string.sub(stored, from, from + #required[2] - 1) ~= required[2] then
      return { "require", at }
    end
  end
end

local function find_taken(records, claims, numbers)
  local claimed = {}
  for _, claim in ipairs(claims) do
    claimed[claim[1]] = true
  end
  for at, record in ipairs(records) do
    local id, session, sequence, _, replaces = unpack(record)
    local stored = call("HGET", RECORDS, id)
    if replaces then
      if not stored or string.sub(stored, (select(4, split(stored)))) ~= replaces then
        return { "replace", at }
      end
    else
      local number = numbers[session]
      if number == nil then
        number = call("HGET", NUMBERS, session)
        numbers[session] = number
      end
      if stored or (number and call("ZCOUNT", SESSION .. number, sequence, sequence) > 0) then
        return { "record", at }
      end
      if shards > 1 and not claimed[id] and call("HEXISTS", ELSEWHERE, id) == 1 then
        return { "elsewhere", at }
      end
    end
  end
end

-- Whether the changes can be made. A user has the rights to all keys of a store, or to none.

local has_rights = false

local function check_rights()
  if not has_rights then
    check_right("ZADD", IDS, "0", "")
    check_right("ZREM", IDS, "")
    check_right("ZREMRANGEBYSCORE", BOUNDS, "0", "0")
    check_right("HSET", RECORDS, "", "")
    check_right("HDEL", RECORDS, "")
    check_right("INCRBY", LAST, "1")
    check_right("SADD", SPACES, "")
    has_rights = true
  end
end

local function check_runs(runs)
  for _, run in ipairs(runs) do
    check_kind("zset", LOGS)
    check_kind("zset", BOUNDS .. run[1])
    check_kind("hash", RUNS .. run[1])
  end
end

local function check_blobs()
  check_kind("zset", HASHES)
  check_kind("hash", WRITTEN)
  check_kind("hash", BLOBS)
end

local function check_rows(rows, versions) -- a row that is there and stays is in its orders already
  for _, row in ipairs(rows) do
    local space, place, _, value = unpack(row)
    if not value or versions[space .. ":" .. place] == 0 then
      check_kind("set", SPACES)
      check_kind("zset", PLACES .. space)
      check_kind("zset", OF_TREE .. space)
    end
  end
end

local function check_records(records, delete_records, numbers, has_position)
  check_kind("zset", ORDER)
  for _, record in ipairs(records) do
    if record[8] then
      check_kind("hash", FEEDS)
      check_kind("zset", FEED .. record[8])
    end
  end
  check_kind("zset", DUE)
  if not has_position then
    check_kind("counter", LAST)
  end
  local next_number
  for _, record in ipairs(records) do
    if numbers[record[2]] == false then -- a new session, or one more record of it
      check_kind("counter", COUNTED)
      check_kind("hash", NAMES)
      next_number = (next_number or tonumber(call("GET", COUNTED) or "0")) + 1
      check_kind("zset", SESSION .. digits(next_number))
    end
  end
  for _, deleted in ipairs(delete_records) do
    local number = split(call("HGET", RECORDS, deleted[1]) or "")
    if number then
      check_kind("hash", NUMBERS)
      check_kind("hash", NAMES)
      check_kind("zset", SESSION .. number)
    end
  end
end

-- Changes.

local function put_run(log, first, length, data)
  call("ZADD", BOUNDS .. log, first, digits(first) .. ":" .. digits(length))
  call("HSET", RUNS .. log, digits(first), data)
end

local function put_runs(runs)
  for _, run in ipairs(runs) do
    local log, first, length, data, tail = unpack(run)
    if first < tail then
      for _, bounds in ipairs(call("ZRANGEBYSCORE", BOUNDS .. log, first, "+inf")) do
        call("HDEL", RUNS .. log, digits((bounds_of(bounds))))
      end
      call("ZREMRANGEBYSCORE", BOUNDS .. log, first, "+inf")
    elseif first == 0 then
      call("ZADD", LOGS, log, log)
    end
    put_run(log, first, length, data)
  end
end

local function put_blobs(blobs)
  local time = call("TIME")
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  now = now - now % shards + shard
  for _, blob in ipairs(blobs) do
    local hash, data = unpack(blob)
    local before = call("HGET", WRITTEN, hash)
    local written = now
    if before then
      -- Later than before, whatever the clock says: collection must see that it was written again.
      written = math.max(now, (tonumber(before) or 0) + shards)
    end
    call("ZADD", HASHES, 0, hash)
    call("HSET", WRITTEN, hash, digits(written))
    if call("HGET", BLOBS, hash) ~= data then
      call("HSET", BLOBS, hash, data)
    end
  end
end

local function number_of(session, numbers)
  local number = numbers[session]
  if not number then
    number = digits(call("INCRBY", COUNTED, 1))
    numbers[session] = number
    call("HSET", NUMBERS, session, number)
    call("HSET", NAMES, number, session)
  end
  return number
end

local is_news = false

local function put_records(records, numbers, position)
  for _, record in ipairs(records) do
    local id, session, sequence, data, replaces, spans, due, feed = unpack(record, 1, 8)
    if due then
      call("ZADD", DUE, due, id)
    elseif replaces then
      call("ZREM", DUE, id)
    end
    if replaces then
      local stored = call("HGET", RECORDS, id)
      local _, _, _, from = split(stored)
      call("HSET", RECORDS, id, string.sub(stored, 1, from - 1) .. data)
    else
      local number = number_of(session, numbers)
      local here = position
      if position then
        position = position + 1
      else
        here = call("INCRBY", LAST, 1)
      end
      call("ZADD", SESSION .. number, sequence, id)
      call("HSET", RECORDS, id, number .. ":" .. digits(sequence) .. ":" .. digits(here) .. spans .. ":" .. data)
      call("ZADD", IDS, 0, id)
      call("ZADD", ORDER, here, id)
      if feed then
        call("ZADD", FEED .. feed, here, id)
        call("HSET", FEEDS, id, feed)
      end
      is_news = true
    end
  end
end

local function put_rows(rows, versions)
  for _, row in ipairs(rows) do
    local space, place, of_tree, value = unpack(row)
    local name = space .. ":" .. place
    local version = versions[name]
    versions[name] = value and version + 1 or 0
    if value then
      if version == 0 then
        call("SADD", SPACES, space)
        call("ZADD", PLACES .. space, 0, place)
        call("ZADD", OF_TREE .. space, 0, of_tree)
      end
      call("HSET", ROWS .. space, place, digits(version + 1) .. ":" .. value)
      is_news = is_news or string.byte(of_tree) == 0 -- a row of the whole store, such as a hint for workers
    elseif version > 0 then
      call("HDEL", ROWS .. space, place)
      call("ZREM", PLACES .. space, place)
      call("ZREM", OF_TREE .. space, of_tree)
    end
  end
end

local function delete_record(id, data)
  local stored = call("HGET", RECORDS, id) or ""
  local number, _, _, from = split(stored)
  if not number or string.sub(stored, from) ~= data then
    return
  end
  call("HDEL", RECORDS, id)
  call("ZREM", IDS, id)
  call("ZREM", ORDER, id)
  call("ZREM", DUE, id)
  local feed = call("HGET", FEEDS, id)
  if feed then
    call("ZREM", FEED .. feed, id)
    call("HDEL", FEEDS, id)
  end
  call("ZREM", SESSION .. number, id)
  if call("EXISTS", SESSION .. number) == 0 then
    local session = call("HGET", NAMES, number)
    if session then
      call("HDEL", NUMBERS, session)
      call("HDEL", NAMES, number)
    end
  end
end

local function delete_run(log, first, length, pieces)
  if call("ZREM", BOUNDS .. log, digits(first) .. ":" .. digits(length)) == 0 then
    return
  end
  call("HDEL", RUNS .. log, digits(first))
  for _, piece in ipairs(pieces) do
    put_run(log, unpack(piece))
  end
  if call("EXISTS", BOUNDS .. log) == 0 then
    call("ZREM", LOGS, log)
  end
end

local function delete_blob(hash, before)
  local written = call("HGET", WRITTEN, hash)
  if written and (tonumber(written) or 0) < before then
    call("HDEL", BLOBS, hash)
    call("HDEL", WRITTEN, hash)
    call("ZREM", HASHES, hash)
  end
end

local function commit_one(commit)
  local records, runs, blobs, rows, require_records, require_rows, delete_records, delete_runs, delete_blobs, position,
    claims = unpack(commit, 1, 11)
  local versions = {} -- of the rows that are written, by space and place
  local numbers = {} -- of the sessions that are written to; false if they have none yet
  local refused = find_late(position, claims)
    or find_changed_row(rows, versions)
    or find_other_tail(runs)
    or find_missing(require_rows, require_records)
    or find_taken(records, claims, numbers)
  if refused then
    return refused
  end

  local puts, deletes = #records + #runs + #blobs, #delete_records + #delete_runs + #delete_blobs
  for _, row in ipairs(rows) do
    if row[4] then
      puts = puts + 1
    else
      deletes = deletes + 1
    end
  end
  local is_nothing = puts + deletes == 0
  if is_nothing then
    check_right("SET", CONFIRMED, "1")
  end
  check_rights()
  check_kind("zset", IDS)
  check_runs(runs)
  check_runs(delete_runs)
  if #blobs + #delete_blobs > 0 then
    check_blobs()
  end
  check_rows(rows, versions)
  if #records + #delete_records > 0 then
    check_records(records, delete_records, numbers, position)
  end

  check_server(puts == 0 and not is_nothing)
  carry_out(function()
    if is_nothing then
      -- WAIT speaks of what its connection wrote last: who commits nothing, to hear whether replicas have what is here,
      -- writes this.
      call("SET", CONFIRMED, 1)
    end
    put_runs(runs)
    if #blobs > 0 then
      put_blobs(blobs)
    end
    put_records(records, numbers, position)
    put_rows(rows, versions)
    for _, deleted in ipairs(delete_records) do
      delete_record(unpack(deleted))
    end
    for _, deleted in ipairs(delete_runs) do
      delete_run(unpack(deleted))
    end
    for _, deleted in ipairs(delete_blobs) do
      delete_blob(unpack(deleted))
    end
  end)
  return 0
end

local answers = {}
for at, commit in ipairs(commits) do
  local is_answered, answer = pcall(commit_one, commit)
  answers[at] = is_answered and answer or { err = type(answer) == "table" and answer.err or "ERR " .. tostring(answer) }
end

if is_news and shards == 1 then -- else they are visible once they are decided
  -- A hint for who follows. A user who has no right to it (docs/redis.md) can save all the same.
  redis.pcall("SPUBLISH", base .. ":news", "")
end

return answers
