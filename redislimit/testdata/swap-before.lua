-- Replaces states that nobody else has written since this member saw them. KEYS are keys of limits.
-- ARGV has two texts for each: what it is expected to have, and its new value; see swap.go. Returns
-- for each key a byte, 1 if it was replaced. The keys of a client are replaced all or none.
local call, pcall, sub, byte, read = redis.call, redis.pcall, string.sub, string.byte, struct.unpack
local out, values, k, keys = {}, {}, 1, #KEYS
while k <= keys do
  local to, ok = k + byte(ARGV[2 * k - 1]) - 1, true
  for i = k, to do
    local want, v = ARGV[2 * i - 1], pcall('GET', KEYS[i])
    values[i] = v
    local n = byte(want, 2)
    if n == 0 or type(v) ~= 'string' then
      ok = ok and n == 0 and not v
    else
      local p, len = 7, 4 + 37 * n
      if #v ~= len and #ARGV[2 * i] ~= len then ok = false end
      for _ = 1, n do
        local at, record
        at, record, p = read('<Hc12', want, p)
        if record ~= sub(v, at, at + 11) then ok = false end
      end
    end
  end
  for i = k, to do
    if ok then
      local want, v, new = ARGV[2 * i - 1], values[i], ARGV[2 * i]
      local _, n, ends = read('<BBI4', want)
      if v and #v ~= 4 + 37 * n then -- it has records of other limits, too
        local had, p = read('<I4', v), 7
        if ends <= had then ends = 0 else v = sub(new, 1, 4) .. sub(v, 5) end
        for j = 0, n - 1 do
          local at = read('<H', want, p)
          v, p = sub(v, 1, at - 1) .. sub(new, 5 + 37 * j, 41 + 37 * j) .. sub(v, at + 37), p + 14
        end
        new = v
      end
      if ends > 0 then
        call('SET', KEYS[i], new, 'EXAT', ends)
      else
        call('SET', KEYS[i], new, 'KEEPTTL')
      end
      out[i] = '\1'
    else
      out[i] = '\0'
    end
  end
  k = to + 1
end
return table.concat(out)
