-- In the first shard: draws positions for commits in other shards, {how many, which shard} each, and notes them as not
-- decided for so many microseconds. Answers the notes; a note begins with the first position.
local commits, patience = unpack(asked)
check_store(base)
check_right("INCRBY", LAST, "1")
check_right("ZADD", base .. ":open", "0", "")
check_kind("counter", LAST)
check_kind("zset", base .. ":open")
if call("EXISTS", LAST) == 0 then
  if call("HGET", ABOUT, "drawn") then
    refuse("LOST " .. base) -- positions would be given out a second time
  end
  call("HSETNX", ABOUT, "drawn", 1)
end
local time = redis.call("TIME")
local due = tonumber(time[1]) * 1000000 + tonumber(time[2]) + patience
local notes = {}
for at, commit in ipairs(commits) do
  local count, shard = unpack(commit)
  local last = redis.call("INCRBY", LAST, count)
  notes[at] = table.concat({ digits(last - count + 1), digits(last), digits(shard), digits(due) }, ":")
  redis.call("ZADD", base .. ":open", last - count + 1, notes[at])
end
return notes
