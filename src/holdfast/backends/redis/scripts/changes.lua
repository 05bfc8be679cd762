-- Records by position: after one, up to one, at most so many.
local after, last, limit = unpack(asked)
if not last then
  last = redis.call("GET", LAST) or "0"
end
return shown(redis.call("ZRANGEBYSCORE", ORDER, "(" .. after, last, "LIMIT", 0, limit))
