-- Of the next ids in the order of their bytes: {how many records are missing, how many have no place in a session, how
-- many logs are named and not listed, where to go on}.
local TOMBSTONE = "HF\1" -- what the data of a tombstone begin with (docs/format.md)
local from, limit = unpack(asked)
local missing, homeless, unlisted = 0, 0, 0
local listed = {}
local ids = call("ZRANGEBYLEX", IDS, from, "+", "LIMIT", 0, limit)
for _, id in ipairs(ids) do
  local stored = call("HGET", RECORDS, id)
  local number, sequence, _, at = split(stored or "")
  if not number then
    missing = missing + 1
  else
    local found = redis.pcall("ZCOUNT", SESSION .. number, sequence, sequence)
    if found ~= 1 then
      homeless = homeless + 1
    end
    -- A tombstone keeps the spans of the record that it replaced, whose logs may have been collected.
    local spans = string.sub(stored, at, at + 2) == TOMBSTONE and "" or string.match(stored, "^%d+:%d+:%d+([%d,;]*):")
    for log in string.gmatch(spans, ";(%d+),") do
      if listed[log] == nil then
        listed[log] = call("ZCOUNT", LOGS, log, log) > 0
      end
      if not listed[log] then
        unlisted = unlisted + 1
      end
    end
  end
end
return { missing, homeless, unlisted, #ids == limit and ids[limit] }
