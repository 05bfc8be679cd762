-- Blobs in the order of their hashes, from a bound on: {hash, size, when written}.
local found = {}
for at, hash in ipairs(redis.call("ZRANGEBYLEX", HASHES, asked[1], "+", "LIMIT", 0, asked[2])) do
  found[at] = { hash, redis.call("HSTRLEN", BLOBS, hash), redis.call("HGET", WRITTEN, hash) or "0" }
end
return found
