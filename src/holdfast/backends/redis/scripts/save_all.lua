-- Plain commits (plain.py), no two of which have anything in common: the conditions of all, then the changes of those whose
-- conditions hold, each kind of change in one command for all of them. Nearly every save comes this way, so it makes do
-- without common.lua (which says what the keys are), and takes what it is asked as it comes.
--
-- ARGV[1] is the space of the rows. Then of each commit: id, session, sequence, spans and data, place of the row, the row as it must
-- be, whether that is all of it or its version only (1 or 0, and after a ";" the end of the record's time to live, if it has
-- one), the row as it becomes, the number of runs; of each run: log, first
-- element, "first:length", data. Answers 0 if all were carried out, else of each 0, 1 (its row), 2 (its record) or 2 + n
-- (its run n): what does not hold.
local call, argv = redis.call, ARGV
local base = KEYS[1]
local RECORDS, NUMBERS = base .. ":record", base .. ":numbers"
local ROWS = base .. ":row:" .. argv[1]
local SESSION, BOUNDS, RUNS = base .. ":session:", base .. ":bounds:", base .. ":runs:"

local starts, sessions, places = {}, {}, {}
local total, next_one, last_word = 0, 2, #argv
while next_one <= last_word do
  total = total + 1
  starts[total] = next_one
  sessions[total] = argv[next_one + 1]
  places[total] = argv[next_one + 4]
  next_one = next_one + 9 + 4 * argv[next_one + 8]
end
local rows = call("HMGET", ROWS, unpack(places))
local numbers = call("HMGET", NUMBERS, unpack(sessions))

local function refusal(i, at)
  local row, expected = rows[i], argv[at + 5]
  if row ~= expected and (string.byte(argv[at + 6]) == 49 or not row or string.sub(row, 1, #expected) ~= expected) then
    return 1
  end
  for n = 1, tonumber(argv[at + 8]) do
    local run = at + 5 + 4 * n
    local tail = 0
    local last = call("ZREVRANGE", BOUNDS .. argv[run], 0, 0)[1]
    if last then
      local first, length = string.match(last, "^(%d+):(%d+)$")
      tail = first + length
    end
    if tail ~= tonumber(argv[run + 1]) then
      return 2 + n
    end
  end
  if numbers[i] and call("ZCOUNT", SESSION .. numbers[i], argv[at + 2], argv[at + 2]) > 0 then
    return 2
  end
  return 0
end

local outcomes, held, ids = {}, {}, {}
for i = 1, total do
  local outcome = refusal(i, starts[i])
  outcomes[i] = outcome
  if outcome == 0 then
    held[#held + 1] = i
    ids[#ids + 1] = "0"
    ids[#ids + 1] = argv[starts[i]]
  end
end
-- The last condition is the first change, too: an id that is there already is not added. What is not added here is left alone.
if #held > 0 and call("ZADD", base .. ":ids", unpack(ids)) < #held then
  local free = {}
  for _, i in ipairs(held) do
    if call("HEXISTS", RECORDS, argv[starts[i]]) == 1 then
      outcomes[i] = 2
    else
      free[#free + 1] = i
    end
  end
  held = free
end

if #held > 0 then
  local position = call("INCRBY", base .. ":last", #held) - #held
  local records, order, heads, due = {}, {}, {}, {}
  for n, i in ipairs(held) do
    local at, number = starts[i], numbers[i]
    local id, sequence = argv[at], argv[at + 2]
    if not number then
      number = string.format("%.0f", call("INCR", base .. ":counted"))
      call("HSET", NUMBERS, argv[at + 1], number)
      call("HSET", base .. ":names", number, argv[at + 1])
    end
    local here = string.format("%.0f", position + n)
    records[2 * n - 1], records[2 * n] = id, number .. ":" .. sequence .. ":" .. here .. argv[at + 3]
    order[2 * n - 1], order[2 * n] = here, id
    heads[2 * n - 1], heads[2 * n] = argv[at + 4], argv[at + 7]
    call("ZADD", SESSION .. number, sequence, id)
    if #argv[at + 6] > 1 then
      due[#due + 1] = string.sub(argv[at + 6], 3)
      due[#due + 1] = id
    end
    for run = at + 9, at + 5 + 4 * argv[at + 8], 4 do
      local log, first = argv[run], argv[run + 1]
      if first == "0" then
        call("ZADD", base .. ":logs", log, log)
      end
      call("ZADD", BOUNDS .. log, first, argv[run + 2])
      call("HSET", RUNS .. log, first, argv[run + 3])
    end
  end
  call("HSET", RECORDS, unpack(records))
  call("ZADD", base .. ":order", unpack(order))
  call("HSET", ROWS, unpack(heads))
  redis.pcall("SPUBLISH", base .. ":news", "") -- see commit.lua
  if #due > 0 then
    call("ZADD", base .. ":due", unpack(due))
  end
end

if #held == total then
  return 0
end
return outcomes
