-- A thread's records between two positions, which its index holds in ascending order.
-- KEYS  meta, idx, voids, recent. ARGV  after, before, at most, then the fields of meta.
-- Gives meta's fields; the first seq and the entries from there on; the voids;
-- and of these events those that are in the stream of recent ones.
local ENTRY = 32
local index, limit = KEYS[2], tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], unpack(ARGV, 4))

-- The seq of the first entry whose position is at least `position`.
local function first_at(position)
  local low, high = 0, math.floor(redis.call('STRLEN', index) / ENTRY)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local bytes = redis.call('GETRANGE', index, middle * ENTRY, middle * ENTRY + 7)
    if struct.unpack('>I8', bytes) >= position then high = middle else low = middle + 1 end
  end
  return low
end

local first, last = first_at(tonumber(ARGV[1]) + 1), first_at(tonumber(ARGV[2])) - 1
last = math.min(last, first + limit - 1)
local entries, recent = '', {}
if first <= last then
  entries = redis.call('GETRANGE', index, first * ENTRY, (last + 1) * ENTRY - 1)
  local from, to = string.format('%.0f-1', first), string.format('%.0f-1', last)
  recent = redis.call('XRANGE', KEYS[4], from, to)
end
local voids = redis.call(
  'ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[1], '(' .. ARGV[2], 'LIMIT', 0, limit)
return { meta, first, entries, voids, recent }
