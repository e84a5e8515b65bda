-- A heartbeat. KEYS: members, meta. ARGV: this member, what it says of itself, its
-- secret, a random epoch, "beat", "look" (without becoming a member) or "leave".
-- Returns the time, the secret and the members alive: those with a heartbeat of the
-- last five seconds.
local call = redis.call
local t = call('TIME')
local now = tonumber(t[1])
if ARGV[5] == 'leave' then
  call('HDEL', KEYS[1], ARGV[1])
  return {}
end
call('HSETNX', KEYS[2], 'secret', ARGV[3])
if ARGV[5] == 'beat' then
  local known = call('HGET', KEYS[1], ARGV[1])
  local since = t[1]
  if known then since = string.match(known, '^%d+ (%d+)') or since end
  call('HSET', KEYS[1], ARGV[1], t[1] .. ' ' .. since .. ' ' .. ARGV[2])
end
local out = {t[1], t[2], call('HGET', KEYS[2], 'secret')}
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+') or 0)
  if at + 5 < now or at > now + 60 then
    call('HDEL', KEYS[1], all[i])
  else
    out[#out + 1], out[#out + 2] = all[i], all[i + 1]
  end
end
return out
