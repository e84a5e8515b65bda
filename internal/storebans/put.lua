-- Writes bans and lifts. KEYS: records, their order, their ends, the bell. ARGV: the most records,
-- how many entries the bell keeps, and then for each record: its kind, its id, the ms since it began,
-- the ms until it ends, what else belongs to it. Kinds: "ban", "lift", and "drop", which removes a
-- ban that began then or before. Without a record it only rings the bell. All times in the store are
-- of its own clock. Returns the last id of the bell.
local call = redis.call
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local n = call('HLEN', KEYS[1])
if n ~= call('ZCARD', KEYS[2]) or n ~= call('ZCARD', KEYS[3]) or n > 0 and not last then
  call('DEL', unpack(KEYS)) -- a part was lost: the members write all again
  last = nil
end
local function drop(id)
  call('HDEL', KEYS[1], id)
  call('ZREM', KEYS[2], id)
  call('ZREM', KEYS[3], id)
end
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 200)) do drop(id) end
local was = last and tonumber(last[2][2]) or 0 -- the number of the latest change
local seq = was
for i = 3, #ARGV, 5 do
  local kind, id, began, ends = ARGV[i], ARGV[i + 1], now - ARGV[i + 2], now + ARGV[i + 3]
  local old = call('HGET', KEYS[1], id)
  local oldBegan, oldEnds
  if old then
    oldBegan, oldEnds = string.match(old, '^%a+ (%d+) (%d+) ')
    oldBegan, oldEnds = tonumber(oldBegan), tonumber(oldEnds)
  end
  if oldBegan and oldBegan > now then oldBegan = nil end -- the store's clock was set back
  local write = ends > now
  if kind == 'drop' then
    write = false
    if old and (not oldBegan or oldBegan <= began) then drop(id) end
  elseif not write or not oldBegan then -- it has ended; there is none, or none that makes sense
  elseif kind == 'lift' then
    write = began > oldBegan
  else -- of two the longer one; two members may have made the same ban, some ms apart
    write = ends > oldEnds + 20
  end
  if write then
    seq = seq + 1
    call('HSET', KEYS[1], id, string.format('%s %.0f %.0f ', kind, began, ends) .. ARGV[i + 4])
    call('ZADD', KEYS[2], seq, id)
    call('ZADD', KEYS[3], ends, id)
  end
end
local over = call('ZCARD', KEYS[3]) - ARGV[1]
if over > 0 then
  local first = call('ZRANGE', KEYS[3], 0, over - 1)
  for _, id in ipairs(first) do drop(id) end
end
if seq > was or #ARGV == 2 then return call('XADD', KEYS[4], 'MAXLEN', ARGV[2], '*', 'seq', seq) end
return last and last[1] or '0-0'
