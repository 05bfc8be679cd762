-- In the first shard: the position up to which everything is decided, then the notes that are overdue.
local lowest = redis.call("ZRANGE", base .. ":open", 0, 0, "WITHSCORES")
if not lowest[1] then
  return { redis.call("GET", LAST) or "0" }
end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answer = { digits(tonumber(lowest[2]) - 1) }
for _, note in ipairs(redis.call("ZRANGE", base .. ":open", 0, 99)) do
  if tonumber(string.match(note, ":(%d+)$")) < now then
    answer[#answer + 1] = note
  end
end
return answer
