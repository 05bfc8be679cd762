-- The row spaces that are or were in use.
return redis.call("SMEMBERS", SPACES)
