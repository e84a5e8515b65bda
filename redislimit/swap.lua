-- Replaces states that nobody else has written since this member saw them. KEYS are keys of limits; see
-- swap.go for ARGV[1]. Returns which clients were not replaced: the number of their first key, 2 bytes
-- each. The keys of a client are replaced all or none.
local call, pcall, sub, byte, read, type = redis.call, redis.pcall, string.sub, string.byte, struct.unpack, type
local m, p, bad, news, ends, k, keys = ARGV[1], 1, '', {}, {}, 1, #KEYS
while k <= keys do
  local count, n, whole = byte(m, p, p + 2)
  local len, ok = 4 + 37 * n, true
  local to = k + count - 1
  if count == 1 and whole == 1 then -- usually: one command, and the value is put back if it was another one
    local new = p + 3 + len
    local v = pcall('SET', KEYS[k], sub(m, new, new + len - 1), 'KEEPTTL', 'GET')
    ok = v == sub(m, p + 3, new - 1)
    if not v then
      call('DEL', KEYS[k])
    elseif not ok and type(v) == 'string' then
      call('SET', KEYS[k], v, 'KEEPTTL')
    end
    p = new + len
  else
    for i = k, to do
      local v, _ = pcall('GET', KEYS[i])
      _, n, whole = byte(m, p, p + 2)
      len, ends[i] = 4 + 37 * n, 0
      if whole == 1 then
        news[i] = sub(m, p + 3 + len, p + 2 + 2 * len)
        ok = ok and v == sub(m, p + 3, p + 2 + len)
        p = p + 3 + 2 * len
      else
        local till, size, at, record
        till, size, p = read('<I4H', m, p + 3)
        local new, parts = sub(m, p, p + size - 1), p + size
        p = parts
        if n == 0 or type(v) ~= 'string' then
          ok, p = ok and n == 0 and not v, p + 14 * n
        else
          if #v ~= len and size ~= len then ok = false end
          for _ = 1, n do
            at, record, p = read('<Hc12', m, p)
            if record ~= sub(v, at, at + 11) then ok = false end
          end
          if ok and #v ~= len then -- it has records of other limits, too
            if till <= read('<I4', v) then till = 0 else v = sub(new, 1, 4) .. sub(v, 5) end
            for j = 0, n - 1 do
              at = read('<H', m, parts + 14 * j)
              v = sub(v, 1, at - 1) .. sub(new, 5 + 37 * j, 41 + 37 * j) .. sub(v, at + 37)
            end
            new = v
          end
        end
        news[i], ends[i] = new, till
      end
    end
    for i = k, ok and to or 0 do
      if ends[i] > 0 then
        call('SET', KEYS[i], news[i], 'EXAT', ends[i])
      else
        call('SET', KEYS[i], news[i], 'KEEPTTL')
      end
    end
  end
  if not ok then bad = bad .. struct.pack('<H', k) end
  k = to + 1
end
return bad
