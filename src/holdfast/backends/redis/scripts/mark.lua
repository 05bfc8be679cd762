-- Marks this shard as one of the store. With `is_last`, in the first shard: all others are marked.
local mark, is_last = unpack(asked)
check_kind("hash", ABOUT)
check_right("HSETNX", ABOUT, "", "")
call("HSETNX", ABOUT, "store", mark)
if is_last then
  call("HSETNX", ABOUT, "marked", 1)
end
return call("HGET", ABOUT, "store")
