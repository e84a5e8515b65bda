-- A probe of one master. KEYS: what it remembers. ARGV: this member, a number that
-- grows, a random epoch. Returns the time, the epoch and the number before: if they
-- are not as expected, the master has lost counts.
local call = redis.call
local t = call('TIME')
call('HSETNX', KEYS[1], 'epoch', ARGV[3])
local before = call('HGET', KEYS[1], ARGV[1])
call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {t[1], t[2], call('HGET', KEYS[1], 'epoch'), before or ''}
