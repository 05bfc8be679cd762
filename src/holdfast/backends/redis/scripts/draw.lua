-- In the first shard: draws positions for commits in other shards, {how many, which shard} each, and notes them as not
-- decided for so many microseconds. Answers the notes; a note begins with the first position.
local commits, patience = unpack(asked)
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
