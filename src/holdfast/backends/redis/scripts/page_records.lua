-- Records in the order of their ids, from a bound on.
return shown(redis.call("ZRANGEBYLEX", IDS, asked[1], "+", "LIMIT", 0, asked[2]))
