-- Checks of a script before its first write. A script that fails midway leaves what it has written: so rights and
-- kinds of keys are checked first. Our errors begin with HOLDFAST (nothing was changed) or HALFWAY (something may have
-- been). The last argument of every script is the mark of the store that the client opened.
local call = redis.call
local ABOUT = KEYS[1] .. ":about"

local function refuse(why)
  error({ err = "HOLDFAST " .. why })
end

local function check_right(command, key, ...)
  if not redis.acl_check_cmd(command, key, ...) then
    refuse("RIGHT " .. string.lower(command) .. " " .. key)
  end
end

-- A key must be of its kind, or absent. Each is asked by a command that the rest of the scripts need the right to, too.
local PROBES = { hash = { "HEXISTS", "" }, zset = { "ZCOUNT", 0, 0 }, set = { "SMEMBERS" }, counter = { "GET" } }

local checked = {} -- keys that were found to be of their kind: no other client changes them while the script runs

local function check_kind(kind, key)
  if checked[key] then
    return
  end
  local command = PROBES[kind]
  local found = redis.pcall(command[1], key, unpack(command, 2))
  if type(found) == "table" and found.err then
    check_right(command[1], key, unpack(command, 2))
    refuse("KIND " .. key .. " is no " .. kind .. ": " .. found.err)
  end
  if kind == "counter" and found and not string.match(found, "^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$") then
    refuse("KIND " .. key .. " is no counter")
  end
  checked[key] = true
end

-- The store must be the one that was opened, and have all the keys that belong together (`more` where there is one
-- shard), or none: FLUSHDB, an eviction or a restart without a file takes some or all.
local function check_store(base, more)
  if call("HGET", ABOUT, "store") ~= ARGV[#ARGV] then
    refuse("GONE " .. base)
  end
  local records, order = base .. ":record", base .. ":order"
  local wanted = { records, order, base .. ":ids", base .. ":numbers", base .. ":names", base .. ":counted", more }
  if call("EXISTS", unpack(wanted)) < #wanted and call("EXISTS", records, order) > 0 then
    refuse("LOST " .. base)
  end
end

-- A server that takes no changes (a replica, its memory or disk full, its replicas too few) says so at the first
-- write of a script. So that is one that changes nothing.
local function check_server(only_deletes)
  if only_deletes then
    call("ZREM", KEYS[1] .. ":ids", "") -- a full memory does not refuse it
  else
    call("ZADD", KEYS[1] .. ":ids", "XX", "0", "")
  end
end

-- All changes of a script. After the checks nothing should fail; what does is not hidden.
local function carry_out(change)
  local is_done, why = pcall(change)
  if not is_done then
    error({ err = "HALFWAY " .. (type(why) == "table" and why.err or tostring(why)) })
  end
end

