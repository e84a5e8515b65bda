-- Reads bans and lifts in the order of their changes. It writes nothing. KEYS: records, their order,
-- their ends, the bell. ARGV: the number of the last change that is known, how many records are
-- wanted, and ids of the bell up to which all is known. Returns the time in ms, 1 if the store still
-- has what led to these ids and else 0, the last id of the bell, how many records there are, and of
-- each record the number, the id and the value.
local call = redis.call
local t = call('TIME')
local last = call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local n = call('HLEN', KEYS[1])
local whole = n == call('ZCARD', KEYS[2]) and n == call('ZCARD', KEYS[3]) and (n == 0 or last)
for i = 3, #ARGV do
  whole = whole and call('XREVRANGE', KEYS[4], ARGV[i], ARGV[i], 'COUNT', 1)[1]
end
local out = {t[1] * 1000 + math.floor(t[2] / 1000), whole and 1 or 0, last and last[1] or '0-0', n}
local changes = call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local ids = {}
for i = 1, #changes, 2 do ids[#ids + 1] = changes[i] end
if #ids == 0 then return out end
for i, value in ipairs(call('HMGET', KEYS[1], unpack(ids))) do
  out[3 * i + 2], out[3 * i + 3], out[3 * i + 4] = tonumber(changes[2 * i]), ids[i], value or ''
end
return out
