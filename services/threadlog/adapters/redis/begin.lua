-- KEYS  the partition's meta.
-- ARGV  the position that is known to have been reached; then pairs of field and value: to store
--       where nothing is stored, and to compare: views of another log or fold stay as they are.
-- Where the watermark is below that position, readers are refused until it is there again.
-- Gives everything that is stored then, as pairs.
local IDENTITY = { cluster_id = 1, topic_id = 1, partitions = 1, format = 1, fold = 1 }

local function is_ours()
  for at = 2, #ARGV, 2 do
    if IDENTITY[ARGV[at]] and redis.call('HGET', KEYS[1], ARGV[at]) ~= ARGV[at + 1] then
      return false
    end
  end
  return true
end

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 2))
elseif is_ours() then
  local stored = redis.call('HMGET', KEYS[1], 'watermark', 'rebuilding_until')
  local watermark, until_ = tonumber(stored[1] or ''), tonumber(stored[2] or '')
  local reached = tonumber(ARGV[1])
  if watermark and until_ and watermark < reached and until_ < reached then
    redis.call('HSET', KEYS[1], 'rebuilding_until', ARGV[1])
  end
end
return redis.call('HGETALL', KEYS[1])
