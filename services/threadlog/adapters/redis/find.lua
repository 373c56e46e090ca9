-- Looks for one event in the index of its thread, from the end, a bounded piece a call.
-- KEYS  meta, ids, idx, voids. ARGV  event id, where to go on (-1: at the end), bytes to look at,
--       then the fields of meta to answer with.
-- Gives meta's fields; seq (-1: not in this piece) and its entry; what `ids` knows; the void copy
-- at the place that it knows; where to go on (0: all was looked at).
local ENTRY, id = 32, ARGV[1]
local meta = redis.call('HMGET', KEYS[1], unpack(ARGV, 4))
local known = redis.call('HGET', KEYS[2], id)
local void = ''
if known then
  local first = string.format('%.0f', (struct.unpack('>I8', string.sub(known, 1, 8))))
  void = redis.call('ZRANGEBYSCORE', KEYS[4], first, first)[1] or ''
  local following = struct.unpack('>I8', string.sub(known, 9, 16))
  if following > 0 then
    local low = (following - 1) * ENTRY
    local entry = redis.call('GETRANGE', KEYS[3], low, low + ENTRY - 1)
    return { meta, following - 1, entry, known, void, 0 }
  end
end
local high = tonumber(ARGV[2])
if high < 0 then high = redis.call('STRLEN', KEYS[3]) end
local low = math.max(0, high - tonumber(ARGV[3]))
local piece = redis.call('GETRANGE', KEYS[3], low, high - 1)
if high == 0 then piece = '' end
local at = string.find(piece, id, 1, true)
while at do
  if (at - 17) % ENTRY == 0 then
    local entry = string.sub(piece, at - 16, at + 15)
    return { meta, (low + at - 17) / ENTRY, entry, known or '', void, 0 }
  end
  at = string.find(piece, id, at + 1, true)
end
return { meta, -1, '', known or '', void, low }
