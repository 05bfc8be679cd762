-- Records by position, the newest first: below a bound, at most so many.
return shown(redis.call("ZREVRANGEBYSCORE", ORDER, asked[1], "-inf", "LIMIT", 0, asked[2]))
