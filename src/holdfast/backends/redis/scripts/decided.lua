-- In the first shard: these notes are decided.
for _, note in ipairs(asked[1]) do
  redis.call("ZREM", base .. ":open", note)
end
redis.pcall("SPUBLISH", base .. ":news", "") -- see commit.lua
return 0
