-- Commits whose positions are not above this one come too late from now on: what is not there will not be.
if asked[1] > tonumber(redis.call("GET", FLOOR) or "0") then
  redis.call("SET", FLOOR, digits(asked[1]))
end
return 0
