-- The rows of these (space, place), as they are stored, false where there is none.
local found = {}
for at, row in ipairs(asked[1]) do
  found[at] = redis.call("HGET", ROWS .. row[1], row[2])
end
return found
