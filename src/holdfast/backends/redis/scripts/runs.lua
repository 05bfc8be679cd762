-- For each span the runs that overlap it: {first, length, data}.
local answers = {}
for at, span in ipairs(asked[1]) do
  local log, first, last = unpack(span)
  local found = {}
  local from = first
  local before = redis.call("ZREVRANGEBYSCORE", BOUNDS .. log, first, "-inf", "LIMIT", 0, 1)[1]
  if before then
    local begins, length = bounds_of(before)
    if begins + length > first then
      from = begins
    end
  end
  for _, bounds in ipairs(redis.call("ZRANGEBYSCORE", BOUNDS .. log, from, "(" .. digits(last))) do
    local begins, length = bounds_of(bounds)
    if begins + length > first then
      found[#found + 1] = { begins, length, redis.call("HGET", RUNS .. log, digits(begins)) }
    end
  end
  answers[at] = found
end
return answers
