-- What the store is, written down by its first client: {layout, number of shards, mark, whether all shards have the
-- mark}. A store that is there is left alone, so that a user who may only read can open it.
local layout, shards, mark = unpack(asked)
check_kind("hash", ABOUT)
local function found()
  return call("HMGET", ABOUT, "layout", "shards", "store", "marked")
end
local about = found()
if about[1] and tonumber(about[1]) >= tonumber(layout) and about[2] and about[3] then
  return about
end
if not redis.acl_check_cmd("HSETNX", ABOUT, "", "") and about[1] and about[2] then
  return about
end
check_right("HSETNX", ABOUT, "", "")
check_right("HSET", ABOUT, "", "")
if not about[1] then
  call("HSETNX", ABOUT, "layout", layout)
elseif tonumber(about[1]) < tonumber(layout) then
  call("HSET", ABOUT, "layout", layout) -- what is there stays as it is: newer layouts only add to it
end
call("HSETNX", ABOUT, "shards", shards)
if call("EXISTS", LAST) == 1 then
  call("HSETNX", ABOUT, "drawn", 1)
end
call("HSETNX", ABOUT, "store", mark)
return found()
