-- How many records of this shard have outlived their time to live, and how many there are.
local time = redis.call("TIME")
return {
  redis.call("ZCOUNT", DUE, "-inf", digits(tonumber(time[1]) * 1000000 + tonumber(time[2]))),
  redis.call("ZCOUNT", IDS, "-inf", "+inf"),
}
