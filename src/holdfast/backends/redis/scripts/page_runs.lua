-- Runs in the order of (log, first), from the first one after a place: {log, first, length, size}.
local after_log, after_first, limit = unpack(asked)
local found = {}
local from = after_log
while true do
  local logs = redis.call("ZRANGEBYSCORE", LOGS, from, "+inf", "LIMIT", 0, 100)
  for _, log in ipairs(logs) do
    local first = log == after_log and "(" .. after_first or "-inf"
    for _, bounds in ipairs(redis.call("ZRANGEBYSCORE", BOUNDS .. log, first, "+inf", "LIMIT", 0, limit - #found)) do
      local begins, length = bounds_of(bounds)
      found[#found + 1] = { log, begins, length, redis.call("HSTRLEN", RUNS .. log, digits(begins)) }
    end
    if #found >= limit then
      return found
    end
  end
  if #logs < 100 then
    return found
  end
  from = "(" .. logs[100]
end
