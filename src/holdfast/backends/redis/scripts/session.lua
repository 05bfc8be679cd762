-- The records of a session, highest sequence first, below a sequence, at most so many.
local session, below, limit = unpack(asked)
local number = redis.call("HGET", NUMBERS, session)
if not number then
  return {}
end
return shown(redis.call("ZREVRANGEBYSCORE", SESSION .. number, below, "-inf", "LIMIT", 0, limit))
