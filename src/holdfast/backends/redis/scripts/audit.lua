-- What of this shard does not fit together, as sentences: kinds of keys, and counts of what is kept in several
-- orders. asked[1] says whether it is the only shard.
local problems = {}
local function report(...)
  problems[#problems + 1] = table.concat({ ... })
end

if redis.pcall("HGET", ABOUT, "store") ~= ARGV[#ARGV] then
  report("the store was emptied or replaced since it was opened: its mark is gone from ", ABOUT)
end
local function has_kind(kind, key)
  local is_right, why = pcall(check_kind, kind, key)
  if not is_right then
    report("the key ", key, " is no ", kind, ": another program has written it")
  end
  return is_right
end
local is_readable = true
for _, key in ipairs({ RECORDS, NUMBERS, NAMES, BLOBS, WRITTEN }) do
  is_readable = has_kind("hash", key) and is_readable
end
for _, key in ipairs({ IDS, ORDER, DUE, LOGS, HASHES }) do
  is_readable = has_kind("zset", key) and is_readable
end
is_readable = has_kind("counter", LAST) and has_kind("counter", COUNTED) and is_readable
is_readable = has_kind("set", SPACES) and is_readable
if not is_readable then
  return problems
end

local function members(key) -- of a hash
  local length = redis.pcall("HLEN", key)
  return type(length) == "number" and length or #call("HKEYS", key)
end
local function places(key) -- of a sorted set
  return call("ZCOUNT", key, "-inf", "+inf")
end
local function compare(what, one, others)
  for order, count in pairs(others) do
    if count < one then
      report(digits(one - count), " of ", digits(one), " ", what, " are missing from ", order)
    elseif count > one then
      report(digits(count - one), " of ", digits(count), " ", what, " that ", order, " names are missing")
    end
  end
end
local records = members(RECORDS)
compare("records", records, { [IDS] = places(IDS), [ORDER] = places(ORDER) })
compare("names of sessions", members(NAMES), { [NUMBERS] = members(NUMBERS) })
compare("blobs", members(BLOBS), { [HASHES] = places(HASHES), [WRITTEN] = members(WRITTEN) })
for _, space in ipairs(call("SMEMBERS", SPACES)) do
  if has_kind("hash", ROWS .. space) and has_kind("zset", PLACES .. space) and has_kind("zset", OF_TREE .. space) then
    local orders = { [PLACES .. space] = places(PLACES .. space), [OF_TREE .. space] = places(OF_TREE .. space) }
    compare("rows of " .. space, members(ROWS .. space), orders)
  end
end
for _, key in ipairs({ COUNTED, SPACES }) do
  if records > 0 and call("EXISTS", key) == 0 then
    report("the key ", key, " is missing")
  end
end
if call("EXISTS", LAST) == 0 and ((asked[1] and records > 0) or call("HGET", ABOUT, "drawn")) then
  report("the key ", LAST, " is missing")
end
return problems
