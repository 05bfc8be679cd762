-- What the store is, written down by whoever opens it first: {layout, number of shards}; and whether the server drops
-- keys when its memory is full.
local about = base .. ":about"
redis.call("HSETNX", about, "layout", asked[1])
if tonumber(redis.call("HGET", about, "layout")) < tonumber(asked[1]) then
  redis.call("HSET", about, "layout", asked[1]) -- what is there stays as it is: newer layouts only add to it
end
redis.call("HSETNX", about, "shards", asked[2])
local found = redis.call("HMGET", about, "layout", "shards")
local policy = redis.pcall("INFO", "memory")
found[3] = type(policy) == "string" and string.match(policy, "maxmemory_policy:([%w-]+)") or ""
return found
