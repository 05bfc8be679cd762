-- The record of an id as `records` has it, and of each span that it names {log, first, end, runs}.
local id = asked[1]
local stored = redis.call("HGET", RECORDS, id)
if not stored then
  return { redis.call("HGET", ELSEWHERE, id), {} }
end
local session = split(stored)
local spans = {}
for log, first, last in string.gmatch(string.match(stored, "^%d+:%d+:%d+([%d,;]*):") or "", ";(%d+),(%d+),(%d+)") do
  spans[#spans + 1] = { log, first, last, runs_of(log, tonumber(first), tonumber(last)) }
end
return { { stored, redis.call("HGET", NAMES, session) }, spans }
