-- Reads bans and lifts in the order of their changes. KEYS: records, their order, meta, bell.
-- ARGV: the number of the last change that is known, how many records are wanted, a random
-- epoch. Returns the time in ms, the epoch, the number of the latest change, the last id of the
-- bell, how many records there are, and of each record the number, the id and the value.
local call = redis.call
local t = call('TIME')
call('HSETNX', KEYS[3], 'epoch', ARGV[3])
local meta = call('HMGET', KEYS[3], 'epoch', 'seq')
local last = call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
local out = {t[1] * 1000 + math.floor(t[2] / 1000), meta[1], tonumber(meta[2] or 0), last[1] and last[1][1] or '0-0',
  call('ZCARD', KEYS[2])}
local ids = call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #ids, 2 do
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = tonumber(ids[i + 1]), ids[i], call('HGET', KEYS[1], ids[i]) or ''
end
return out
