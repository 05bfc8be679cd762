-- Which of these logs are here.
local found = {}
for at, log in ipairs(asked[1]) do
  found[at] = redis.call("EXISTS", BOUNDS .. log)
end
return found
