-- In the first shard: 1 to one who asks within so many milliseconds, 0 to all others.
return redis.call("SET", base .. ":collecting", 1, "NX", "PX", asked[1]) and 1 or 0
