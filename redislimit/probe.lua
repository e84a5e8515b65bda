-- A probe of one master. KEYS: what it remembers, and a key as those of limits. ARGV: this
-- member, a number that grows, a random epoch. Returns the time, the epoch and the number
-- before: if they are not as expected, the master has lost counts. It fails if the user has
-- no right that limits need: so a member that counts nothing notices it, too.
local call = redis.call
call('SET', KEYS[2], '')
call('GET', KEYS[2])
call('DEL', KEYS[2])
local t = call('TIME')
call('HSETNX', KEYS[1], 'epoch', ARGV[3])
local before = call('HGET', KEYS[1], ARGV[1])
call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {t[1], t[2], call('HGET', KEYS[1], 'epoch'), before or ''}
