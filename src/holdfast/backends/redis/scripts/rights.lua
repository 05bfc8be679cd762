-- Which of these commands this user may not use, on keys of this shard.
local missing = {}
for _, command in ipairs(asked[1]) do
  if not redis.acl_check_cmd(unpack(command)) then
    missing[#missing + 1] = string.lower(command[1])
  end
end
return missing
