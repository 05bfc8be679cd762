-- The blobs of these hashes, false where there is none.
local found = {}
for at, hash in ipairs(asked[1]) do
  found[at] = redis.call("HGET", BLOBS, hash)
end
return found
