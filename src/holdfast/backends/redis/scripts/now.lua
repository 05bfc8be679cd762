-- The server's time, in microseconds.
local time = redis.call("TIME")
return digits(tonumber(time[1]) * 1000000 + tonumber(time[2]))
