-- Records by position: after one, up to one, at most so many; of one feed, or of all.
local after, last, limit, feed = unpack(asked, 1, 4)
if not last then
  last = redis.call("GET", LAST) or "0"
end
return shown(redis.call("ZRANGEBYSCORE", feed and FEED .. feed or ORDER, "(" .. after, last, "LIMIT", 0, limit))
