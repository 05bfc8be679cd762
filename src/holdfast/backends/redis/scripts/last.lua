-- The highest position that was given out, where this shard is the only one.
return redis.call("GET", LAST) or "0"
