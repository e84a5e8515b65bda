-- Gives a member slots of an upstream that the group has together. KEYS: the members
-- of the upstream. ARGV: this member, the capacity, the slots that its requests use,
-- that it has, that it wants; how long a lease lasts in ms, or 0 to leave; its report.
-- Returns its slots, since when it is a member, and the name, since when and report of
-- each other member.
local call = redis.call
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local me, lease = ARGV[1], tonumber(ARGV[6])
if lease == 0 then
  call('HDEL', KEYS[1], me)
  return {}
end
local capacity, inside, has, wants = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local all = call('HGETALL', KEYS[1])
local since, taken, alive, begun = now, 0, false, 0
local out = {0, 0}
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  if name == 'begun' then
    begun = tonumber(value) or 0
  else
    local till, from, slots, at = string.match(value, '^(%d+) (%d+) (%d+) ()')
    till, from, slots = tonumber(till), tonumber(from), tonumber(slots)
    if not till or till <= now or till > now + 60000 then
      call('HDEL', KEYS[1], name)
    else
      alive = true
      if name == me then
        since = from
      else
        taken = taken + slots
        out[#out + 1], out[#out + 2], out[#out + 3] = name, from, string.sub(value, at)
      end
    end
  end
end
-- Without any lease in force, the store may have lost them. Until all members have come
-- again, nobody gets more than it has.
if not alive or begun > now then
  begun = now
  call('HSET', KEYS[1], 'begun', string.format('%.0f', now))
end
if now < begun + lease then wants = math.min(wants, has) end
local slots = math.max(1, math.min(wants, capacity - taken))
call('HSET', KEYS[1], me, string.format('%.0f %.0f %.0f ', now + lease, since, math.max(slots, inside)) .. ARGV[7])
call('PEXPIRE', KEYS[1], 600000)
out[1], out[2] = slots, since
return out
