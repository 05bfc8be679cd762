-- What the node of this shard says of itself: {maxmemory-policy, keys it has evicted, role, whether it keeps an
-- append-only file}; false where this user may not ask.
local function field(section, name)
  local said = redis.pcall("INFO", section)
  return type(said) == "string" and string.match(said, name .. ":([%w-]+)") or false
end
return {
  field("memory", "maxmemory_policy"),
  field("stats", "evicted_keys"),
  field("replication", "role"),
  field("persistence", "aof_enabled"),
}
