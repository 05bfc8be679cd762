-- What the scripts share. KEYS[1] is the shard's name with its hash tag: every key of the shard begins with it.
local base = KEYS[1]
local asked = cmsgpack.unpack(ARGV[1])

local RECORDS = base .. ":record"     -- hash: id -> "session:sequence:position;log,first,end;…:" and the data
local IDS = base .. ":ids"            -- sorted set: ids, in the order of their bytes
local ORDER = base .. ":order"        -- sorted set: ids by position
local LAST = base .. ":last"          -- the highest position that was given out
local FEED = base .. ":feed:"        -- .. feed: sorted set: ids of its records by position
local FEEDS = base .. ":feeds"        -- hash: id -> feed, of the records that have one
local DUE = base .. ":due"            -- sorted set: ids by the end of their time to live, in microseconds
local FLOOR = base .. ":floor"        -- commits with a position up to here come too late (shards only)
local ELSEWHERE = base .. ":elsewhere" -- hash: id -> "shard:claim" of a record that is not in its id's own shard
local BARRED = base .. ":barred"      -- hash: id -> the highest claim that may no longer be used here
local NUMBERS = base .. ":numbers"    -- hash: session -> its number
local NAMES = base .. ":names"        -- hash: number -> session
local SESSION = base .. ":session:"   -- .. number: sorted set: ids by sequence
local LOGS = base .. ":logs"          -- sorted set: logs by number
local COUNTED = base .. ":counted"    -- how many sessions were given a number
local BOUNDS = base .. ":bounds:"     -- .. log: sorted set: "first:length" by first
local RUNS = base .. ":runs:"         -- .. log: hash: first -> data
local BLOBS = base .. ":blob"         -- hash: sha256 -> data
local WRITTEN = base .. ":written"    -- hash: sha256 -> time of the last commit that wrote it
local HASHES = base .. ":hashes"      -- sorted set: hashes, in the order of their bytes
local SPACES = base .. ":spaces"      -- set: row spaces that are or were in use
local ROWS = base .. ":row:"          -- .. space: hash: place -> "version:" and the value
local PLACES = base .. ":places:"     -- .. space: sorted set: places, by key and tree
local OF_TREE = base .. ":tree:"      -- .. space: sorted set: places by tree and key

local function digits(number) -- exact: Lua would write large numbers with an exponent
  return string.format("%.0f", number)
end

local function split(stored) -- of a record: number of the session, sequence, position, and where its data begins
  local session, sequence, position, at = string.match(stored, "^(%d+):(%d+):(%d+)[%d,;]*:()")
  return session, sequence, position, at
end

local function row_of(space, place) -- its version and value; 0 if there is none
  local stored = redis.call("HGET", ROWS .. space, place)
  if not stored then
    return 0, nil
  end
  local version, at = string.match(stored, "^(%d+):()")
  if not version then
    error({ err = "HOLDFAST DAMAGED a row of " .. space })
  end
  return tonumber(version), string.sub(stored, at)
end

local function bounds_of(member)
  local first, length = string.match(member, "^(%d+):(%d+)$")
  return tonumber(first), tonumber(length)
end

local function runs_of(log, first, last) -- those that overlap [first, last): {first, length, data} of each
  local found = {}
  local from = first
  local before = redis.call("ZREVRANGEBYSCORE", BOUNDS .. log, first, "-inf", "LIMIT", 0, 1)[1]
  if before then
    local begins, length = bounds_of(before)
    if begins + length > first then
      from = begins
    end
  end
  for _, bounds in ipairs(redis.call("ZRANGEBYSCORE", BOUNDS .. log, from, "(" .. digits(last))) do
    local begins, length = bounds_of(bounds)
    local data = begins + length > first and redis.call("HGET", RUNS .. log, digits(begins))
    if data then -- else it is missing, as one without bounds would be
      found[#found + 1] = { begins, length, data }
    end
  end
  return found
end

local function shown(ids) -- {id, stored, session} of each
  local found = {}
  for _, id in ipairs(ids) do
    local stored = redis.call("HGET", RECORDS, id)
    if stored then
      found[#found + 1] = { id, stored, redis.call("HGET", NAMES, (split(stored))) }
    end
  end
  return found
end
