-- In the first shard: how many overdue records the last collection had to leave, because something holds them. With a
-- number, that is what is noted.
if asked[1] then
  redis.call("SET", base .. ":held", digits(asked[1]))
end
return redis.call("GET", base .. ":held") or "0"
