-- Rows of a space between two bounds of one of its two orders: {place, stored}. A row of one tree's order is found by
-- the place that follows from its place there.
local space, of_one_tree, from, to, limit = unpack(asked)
local found = {}
if not of_one_tree then
  for at, place in ipairs(redis.call("ZRANGEBYLEX", PLACES .. space, from, to, "LIMIT", 0, limit)) do
    found[at] = { place, redis.call("HGET", ROWS .. space, place) }
  end
else
  local tree = string.sub(from, 2, 1 + of_one_tree)
  for at, place in ipairs(redis.call("ZRANGEBYLEX", OF_TREE .. space, from, to, "LIMIT", 0, limit)) do
    local named = string.sub(place, of_one_tree + 1) .. string.sub(tree, 2)
    found[at] = { named, redis.call("HGET", ROWS .. space, named) }
  end
end
return found
