-- KEYS  the partition's meta. ARGV  pairs of field and value to store where nothing is stored.
-- Gives everything that is stored then, as pairs.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return redis.call('HGETALL', KEYS[1])
