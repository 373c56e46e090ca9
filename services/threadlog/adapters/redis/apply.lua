-- Moves the views of one partition from one watermark to the next, in one step.
--
-- KEYS  1 is the partition's meta; the others are named by number in the rows.
-- ARGV  expected watermark, next watermark ('' leaves it where it is), number of new dead letters,
--       recents kept, their idle milliseconds, the channel of moves; then a head and a body a row.
-- Gives the stored watermark: the next one exactly when everything is in. '0' where nothing is.
--
-- Redis undoes nothing of a script that fails half-way. So every row is looked at before the first
-- one is written, each write may be repeated, and the watermark comes last, with the one number
-- that may not be counted twice. Writes that need memory come before those that free some: Redis
-- refuses the first of them when it is full, and after a first write it refuses none.

local meta, expected, target = KEYS[1], ARGV[1], ARGV[2]
local recents_max, idle_ms = ARGV[4], ARGV[5]
local FIRST = 7
local OUTSIDE, NONE = string.rep('\255', 8), string.rep('\0', 8)
local ENTRY = 32

local function number(bytes)
  return (struct.unpack('>I8', bytes))
end

local function long(value)
  return struct.pack('>I8', value)
end

-- An `ids` entry keeps the first copy's position, and the seq once there is one.
local function remember(ids, id, position, following, always)
  local known = redis.call('HGET', ids, id)
  if not known then
    if always then redis.call('HSET', ids, id, position .. following) end
    return
  end
  local first, kept = string.sub(known, 1, 8), string.sub(known, 9, 16)
  if number(position) < number(first) then first = position end
  if following ~= NONE then kept = following end
  if first .. kept ~= known then redis.call('HSET', ids, id, first .. kept) end
end

-- By index, what this call has placed there: most causes are not far from their effects.
local placed = {}

-- The seq + 1 of the accepted event `cause` among those before `seq`, or OUTSIDE. Only those
-- before: so a repeat, which finds later entries too, writes the same.
local function cause_of(index, ids, cause, seq)
  local near = placed[index] and placed[index][cause]
  if near and near < seq then return long(near + 1) end
  local known = redis.call('HGET', ids, cause)
  local following = known and string.sub(known, 9, 16) or NONE
  if following ~= NONE then
    return number(following) <= seq and following or OUTSIDE
  end
  local high, size = seq * ENTRY, 2048
  while high > 0 do
    local low = math.max(0, high - size)
    local piece = redis.call('GETRANGE', index, low, high - 1)
    local at = string.find(piece, cause, 1, true)
    while at do
      if (at - 17) % ENTRY == 0 then return long((low + at - 17) / ENTRY + 1) end
      at = string.find(piece, cause, at + 1, true)
    end
    high, size = low, 65536
  end
  return OUTSIDE
end

local newest, streams = {}, {}

local function recall(key, seq, line)
  local last = newest[key]
  if not last then
    local tail = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)
    last = tail[1] and tonumber(string.match(tail[1][1], '^%d+')) or -1
  end
  local id = string.format('%.0f-1', seq)
  if seq <= last then
    local there = redis.call('XRANGE', key, id, id)
    if not there[1] or there[1][2][2] == line then
      newest[key] = last
      return
    end
    -- It is a cache: what it says differently goes, and is read from the log.
    redis.call('DEL', key)
  end
  redis.call('XADD', key, 'MAXLEN', '~', recents_max, id, 'e', line)
  newest[key] = seq
end

local function belong(key, thread)
  if not (streams[key] and streams[key][thread]) then
    redis.call('ZADD', key, 0, thread)
    streams[key] = streams[key] or {}
    streams[key][thread] = true
  end
end

local writes = {}

function writes.J(head, line)
  local _, index, ids, recent, outside, stream = struct.unpack('>c1I4I4I4I4I4', head)
  local thread, position, seq8 =
    string.sub(head, 22, 37), string.sub(head, 38, 45), string.sub(head, 46, 53)
  local id, cause, flags =
    string.sub(head, 54, 69), string.sub(head, 70, 85), string.byte(head, 86)
  local seq, link = number(seq8), NONE
  if flags >= 2 then link = cause_of(KEYS[index], KEYS[ids], cause, seq) end
  redis.call('SETRANGE', KEYS[index], seq * ENTRY, position .. link .. id)
  placed[KEYS[index]] = placed[KEYS[index]] or {}
  placed[KEYS[index]][id] = seq
  remember(KEYS[ids], id, position, long(seq + 1), flags % 2 == 1)
  if link == OUTSIDE then
    redis.call('ZADD', KEYS[outside], 0, cause .. thread .. seq8 .. position)
  end
  belong(KEYS[stream], thread)
  recall(KEYS[recent], seq, line)
end

function writes.V(head, body)
  local _, voids, ids = struct.unpack('>c1I4I4', head)
  local position = string.sub(head, 10, 17)
  local score = string.format('%.0f', number(position))
  redis.call('ZADD', KEYS[voids], score, body)
  local there = redis.call('ZRANGEBYSCORE', KEYS[voids], score, score)
  for _, member in ipairs(there) do
    if member ~= body then redis.call('ZREM', KEYS[voids], member) end
  end
  remember(KEYS[ids], string.sub(head, 18, 33), position, NONE, true)
end

function writes.S(head, body)
  local _, key = struct.unpack('>c1I4', head)
  redis.call('SET', KEYS[key], body)
end

function writes.F(head, body)
  local _, key, stream = struct.unpack('>c1I4I4', head)
  redis.call('HSET', KEYS[key], string.sub(head, 26, 33), body)
  belong(KEYS[stream], string.sub(head, 10, 25))
end

function writes.R(head, body)
  local _, key, threads, open = struct.unpack('>c1I4I4I4', head)
  local is_open, place, name =
    string.byte(head, 14) == 1, string.sub(head, 15, 46), string.sub(head, 47)
  local former = redis.call('HGET', KEYS[key], 'place')
  redis.call('ZADD', KEYS[threads], 0, place)
  if former and former ~= place then redis.call('ZREM', KEYS[threads], former) end
  redis.call(is_open and 'SADD' or 'SREM', KEYS[open], name)
  redis.call('HSET', KEYS[key], 'row', body, 'place', place)
end

local SIZES = { J = 86, V = 33, S = 5, F = 33 }
local KEYS_OF = { J = 5, V = 2, S = 1, F = 2, R = 3 }

local function problem()
  if #ARGV < FIRST - 1 or (#ARGV - FIRST + 1) % 2 ~= 0 then return 'arguments' end
  if not tonumber(expected) or (target ~= '' and not tonumber(target)) then return 'watermark' end
  for at = FIRST, #ARGV, 2 do
    local head = ARGV[at]
    local kind = string.sub(head, 1, 1)
    local fits = writes[kind] and (SIZES[kind] or math.max(#head, 47)) == #head
    if not fits then return 'row' end
    for n = 1, KEYS_OF[kind] do
      local key = struct.unpack('>I4', string.sub(head, n * 4 - 2, n * 4 + 1))
      if not KEYS[key] then return 'key' end
    end
  end
end

local stored = redis.call('HGET', meta, 'watermark')
if stored ~= expected then return stored or '0' end
local wrong = problem()
if wrong then return redis.error_reply('ERR threadlog: malformed ' .. wrong) end
for at = FIRST, #ARGV, 2 do
  writes[string.sub(ARGV[at], 1, 1)](ARGV[at], ARGV[at + 1])
end
for key in pairs(newest) do
  redis.call('PEXPIRE', key, idle_ms)
end
if target == '' then return stored end
local letters = tonumber(redis.call('HGET', meta, 'dead_letters') or '0') + tonumber(ARGV[3])
redis.call('HSET', meta, 'watermark', target, 'dead_letters', letters)
redis.call('PUBLISH', ARGV[6], target)
return target
