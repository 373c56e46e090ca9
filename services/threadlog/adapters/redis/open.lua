-- The open and queued threads with the watermark of the same moment.
-- KEYS  meta, open. ARGV  the fields of meta to answer with. Gives meta's fields and the members.
return { redis.call('HMGET', KEYS[1], unpack(ARGV)), redis.call('SMEMBERS', KEYS[2]) }
