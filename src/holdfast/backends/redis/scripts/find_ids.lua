-- Of the next ids in the order of their bytes: those that end in these bytes, before which is this half byte (or -1).
-- Answers the last id that was looked at (false after the last one), then those found.
local from, ending, half, count, limit = unpack(asked)
local ids = redis.call("ZRANGEBYLEX", IDS, from, "+", "LIMIT", 0, count)
local found = { #ids == count and ids[count] }
for _, id in ipairs(ids) do
  if string.sub(id, #id - #ending + 1) == ending then
    if half < 0 or (#id > #ending and string.byte(id, #id - #ending) % 16 == half) then
      found[#found + 1] = id
      if #found > limit then
        break
      end
    end
  end
end
return found
