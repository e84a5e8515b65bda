-- Applies reports to the states of limits and decides requests. See message.go for
-- ARGV[1], for the reply and for the values of keys. All times and costs are whole
-- numbers below 2^53; where products are larger, they are compared exactly.
local call, pcall, read, pack, sub, byte = redis.call, redis.pcall, struct.unpack, struct.pack, string.sub, string.byte
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local m = ARGV[1]
local token, me, floors, ndefs, pos = read('<c6c4BH', m)
local D = {}
for i = 1, ndefs do
  local d = {}
  d.field, d.kind, d.settled, d.held, d.w, d.a, d.unit, d.bu, d.br, d.cu, d.cr, d.far, d.t, pos =
    read('<c6BBBddddddddd', m, pos)
  d.most = 4 * d.a + 268435456 -- where counts saturate
  d.tracked = d.held == 1 or d.kind == 3
  D[i] = d
end

-- two returns a product of whole numbers as an exact sum (Dekker 1971).
local function two(a, b)
  local p = a * b
  local t = 134217729 * a
  local ah = t - (t - a)
  local al = a - ah
  t = 134217729 * b
  local bh = t - (t - b)
  local bl = b - bh
  return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl
end

-- less reports whether a*b < c*d, or if they are equal, whether orEqual is set.
local function less(a, b, c, d, orEqual)
  local p, q = two(a, b)
  local r, s = two(c, d)
  if p ~= r then return p < r end
  if q ~= s then return q < s end
  return orEqual
end

local bad, seconds = 0, tonumber(call('TIME')[1])

-- window brings a state to window n.
local function roll(e, n)
  local gone = n - e.s1
  if e.s2 + e.s3 == 0 then e.s1 = n
  elseif gone == 1 then e.s1, e.s2, e.s3 = n, e.s3, 0
  elseif gone > 1 then e.s1, e.s2, e.s3 = n, 0, 0
  end
end

local function carry(u, r, unit)
  if r >= unit then return u + 1, r - unit end
  return u, r
end

-- raise makes a state at least another one.
local function raise(e, f1, f2, f3)
  local k = e.d.kind
  if k == 0 then
    if f2 + f3 == 0 then return end
    if f1 > e.s1 then roll(e, f1) end
    if f1 < e.s1 then
      if f1 == e.s1 - 1 then f2, f3 = f3, 0 else return end
    end
    if f2 > e.s2 then e.s2 = f2 end
    if f3 > e.s3 then e.s3 = f3 end
  elseif k == 1 then
    if f1 > e.s1 or f1 == e.s1 and f2 > e.s2 then e.s1, e.s2 = f1, f2 end
  elseif k == 2 then
    if f3 > 0 and (f1 > e.s1 or f1 == e.s1 and f2 > e.s2) then e.s1, e.s2 = f1, f2 end
    if f3 > e.s3 then e.s3 = f3 end
  end
end

-- add adds amounts that were charged or refunded.
local function add(e, d1, d2, d3)
  local k, d = e.d.kind, e.d
  if k == 0 then
    if d1 > e.s1 then roll(e, d1) end
    local back = e.s1 - d1
    if back == 0 then
      e.s2, e.s3 = max(0, e.s2 + d2), max(0, e.s3 + d3)
    elseif back == 1 then
      e.s2 = max(0, e.s2 + d3)
    end
    e.s2, e.s3 = min(e.s2, d.most), min(e.s3, d.most)
  elseif k == 1 then
    if e.s1 < e.n1 or e.s1 == e.n1 and e.s2 < e.n2 then e.s1, e.s2 = e.n1, e.n2 end
    local u, r = carry(e.s1 + d1, e.s2 + d2, d.unit)
    if d1 >= 0 then
      local cu, cr = carry(e.n1 + d.cu, e.n2 + d.cr, d.unit)
      if u > cu or u == cu and r > cr then u, r = cu, cr end
      if u < e.s1 or u == e.s1 and r < e.s2 then u, r = e.s1, e.s2 end
    elseif u < e.n1 or u == e.n1 and r < e.n2 then
      u, r = e.n1, e.n2
    end
    e.s1, e.s2 = u, r
  elseif k == 2 then
    if d3 ~= 0 then e.s3 = min(max(0, e.s3 + d3), d.most) end
    if e.s3 > 0 and (d1 > e.s1 or d1 == e.s1 and d2 > e.s2) then e.s1, e.s2 = d1, d2 end
  end
end

-- passes reports whether a cost fits, c1 whole and for gcra c1 µs and c2.
local function passes(e, c1, c2)
  local d = e.d
  local k = d.kind
  if k == 3 then return e.others + e.own + c1 <= d.a end
  local h = 0
  if d.held == 1 then h = e.others + e.own end
  if k == 0 then
    local rest = d.w
    if e.s1 == e.n1 then rest = d.w - e.n2 end
    if d.settled == 1 then
      local room = d.a - e.s3 - h
      return room > 0 and less(e.s2, rest, room, d.w, false)
    end
    if e.s2 + e.s3 + c1 <= d.a then return true end
    local room = d.a - e.s3 - c1
    return room >= 0 and less(e.s2, rest, room, d.w, true)
  elseif k == 1 then
    local u, r = e.s1 - e.n1, e.s2 - e.n2
    if r < 0 then u, r = u - 1, r + d.unit end
    if u < 0 then u, r = 0, 0 end
    if d.settled == 1 then
      local span = h * d.t
      if span < 9007199254740992 then
        local whole = floor(span / d.unit)
        u, r = carry(u + whole, r + span - whole * d.unit, d.unit)
      else
        u = u + ceil(span / d.unit)
      end
      return u < d.bu or u == d.bu and r < d.br
    end
    u, r = carry(u + c1, r + c2, d.unit)
    return u < d.bu or u == d.bu and r <= d.br
  end
  return e.s3 + c1 <= d.a
end

local function spend(e, c1, c2)
  local k = e.d.kind
  if e.d.held == 1 or k == 3 then
    e.own = e.own + c1
  elseif e.d.settled == 1 then
    return
  elseif k == 0 then
    e.s3 = e.s3 + c1
  elseif k == 1 then
    if e.s1 < e.n1 or e.s1 == e.n1 and e.s2 < e.n2 then e.s1, e.s2 = e.n1, e.n2 end
    e.s1, e.s2 = carry(e.s1 + c1, e.s2 + c2, e.d.unit)
  else
    e.s3 = e.s3 + c1
    if e.n1 > e.s1 or e.n1 == e.s1 and e.n2 > e.s2 then e.s1, e.s2 = e.n1, e.n2 end
  end
  e.dirty = true
end

-- cut returns where the records of a value begin and where the last one ends, or false if the value
-- makes no sense.
local function cut(v)
  local at, p, len = {}, 5, #v
  while p <= len do
    local count = byte(v, p + 12)
    at[#at + 1] = p
    p = count and p + 37 + 16 * count or len + 2
  end
  at[#at + 1] = p
  return p == len + 1 and at
end

local E, n = {}, 0
local counts, ends, values, records = {}, {}, {}, {} -- of each key: its states, end, value, where its records are
for k = 1, #KEYS do
  local v = pcall('GET', KEYS[k])
  local wrong = type(v) == 'table'
  if wrong and sub(v.err, 1, 9) ~= 'WRONGTYPE' then return v end
  local at = v and not wrong and #v >= 4 and cut(v)
  if v and not at then
    call('DEL', KEYS[k])
    v, bad = false, bad + 1
  end
  ends[k], values[k], records[k] = v and read('<I4', v) or 0, v, at or {}
  local count
  count, pos = read('B', m, pos)
  local place = 0
  for j = 1, count do
    local i, has, base, n1, n2
    i, has, base, n1, n2, pos = read('<HBc6dd', m, pos)
    local d = D[i + 1]
    local kind, tracked = d.kind, d.tracked
    local s1, s2, s3, stored, dirty = 0, 0, 0, false, false
    local own, others, mine, since, holders = 0, 0, 0, 0, tracked and {}
    local last = v and #at - 1 or 0
    local field = d.field
    place = place < last and place + 1 or last -- the record after the last one, ordinarily
    if place > 0 and sub(v, at[place], at[place] + 5) ~= field then
      place = last
      while place > 0 and sub(v, at[place], at[place] + 5) ~= field do place = place - 1 end
    end
    if place > 0 then
      local p, size
      stored, size, s1, s2, s3, p = read('<c6Bddd', v, at[place] + 6)
      if not (s1 % 1 == 0 and s2 % 1 == 0 and s3 % 1 == 0 and s1 >= -9007199254740992 and
          s1 <= 9007199254740992 and s2 >= 0 and s2 <= 9007199254740992 and s3 >= 0 and s3 <= 9007199254740992) then
        s1, s2, s3, stored, bad = 0, 0, 0, false, bad + 1
      end
      for r = 1, size do
        if tracked and stored then
          local id, amount, told = read('<c4dI4', v, p)
          if id == me then
            mine, since = amount, told
          elseif told + 5 >= seconds and told <= seconds + 60 and amount % 1 == 0 and amount > 0 and
              amount <= 9007199254740992 then
            others = others + amount
            holders[#holders + 1] = sub(v, p, p + 15)
          end
        end
        p = p + 16
      end
    end
    -- The state as of now. If it is far ahead, it is written, so that it advances again.
    if kind == 0 then
      if s1 - n1 > d.far then s1, dirty = n1, true end
      if s2 > d.most then s2 = d.most end
      if s3 > d.most then s3 = d.most end
    elseif kind == 1 then
      if not stored then s1, s2 = n1, n2 end
      if s2 >= d.unit then s2 = d.unit - 1 end
      if s1 - n1 > d.far then
        s1, s2 = carry(n1 + d.cu, n2 + d.cr, d.unit)
        dirty = true
      end
    elseif kind == 2 then
      if s1 - n1 > d.far then s1, s2, dirty = n1, n2, true end
      local gap = (n1 - s1) * 1000 + n2 - s2
      if s3 == 0 or gap >= d.w then s1, s2, s3 = 0, 0, 0 end
      if s3 > d.most then s3 = d.most end
    end
    local same = stored == base or not stored
    -- All fields at once: a table that grows is made again several times.
    local e = {d = d, n1 = n1, n2 = n2, s1 = s1, s2 = s2, s3 = s3, own = own, others = others, same = same,
      test = has >= 16 or not same, dirty = dirty, stored = stored, holders = holders,
      place = place, text = false, at = 0}
    if kind == 0 and (n1 > s1 or s2 + s3 == 0) then roll(e, n1) end
    local f1, f2, f3
    if has % 2 == 1 then
      if not stored or floors == 1 or has % 16 >= 8 then f1, f2, f3 = read('<ddd', m, pos) end
      pos = pos + 24
    end
    if has % 4 >= 2 then
      local d1, d2, d3
      d1, d2, d3, pos = read('<ddd', m, pos)
      add(e, d1, d2, d3)
      e.dirty = true
    end
    if f1 then
      s1, s2, s3 = e.s1, e.s2, e.s3
      raise(e, f1, f2, f3)
      if s1 ~= e.s1 or s2 ~= e.s2 or s3 ~= e.s3 then e.dirty = true end
    end
    if has % 8 >= 4 then
      own, pos = read('<d', m, pos)
      e.own = own
    end
    -- What this member has is written when it changes, and every two seconds: others
    -- ignore it after five.
    if tracked and (own ~= mine or own > 0 and since + 2 <= seconds) then e.dirty = true end
    n = n + 1
    E[n] = e
  end
  counts[k] = count
end

local out = {}
local ndecisions
ndecisions, pos = read('<H', m, pos)

-- group takes parts of a decision, all or none: a state and two figures each.
local function group(P, from, to)
  local pass = true
  for j = from, to, 3 do
    local e = P[j]
    if (e.test or not e.same) and not passes(e, P[j + 1], P[j + 2]) then pass = false end
  end
  for j = from, to, 3 do
    local e = P[j]
    if pass then
      spend(e, P[j + 1], P[j + 2])
    elseif e.d.kind == 2 and e.s3 > 0 and (e.n1 > e.s1 or e.n1 == e.s1 and e.n2 > e.s2) then
      e.s1, e.s2, e.dirty = e.n1, e.n2, true
    end
  end
  return pass
end

local P = {}
for i = 1, ndecisions do
  local all, dry, verdict = nil, nil, '\2'
  all, dry, pos = read('<BB', m, pos)
  local size = 0
  for j = 1, all do
    local at, c1, c2
    at, c1, c2, pos = read('<Hdd', m, pos)
    P[size + 1], P[size + 2], P[size + 3] = E[at + 1], c1, c2
    size = size + 3
  end
  local main = size - 3 * dry
  if not group(P, 1, main) then verdict = '\0'
  elseif dry > 0 and not group(P, main + 1, size) then verdict = '\1'
  end
  out[i] = verdict
end

local i, size = 0, ndecisions
for k = 1, #KEYS do
  local v, at, count, write, ttl, ends = values[k], records[k], counts[k], false, 0, ends[k]
  local pieces, len, before = {}, 5, #at - 1 -- of the new value: its records, where the next one begins
  for j = 1, before do pieces[j] = false end
  for j = i + 1, i + count do
    local e = E[j]
    local d, s1, s2, s3, dirty, stored, holders = e.d, e.s1, e.s2, e.s3, e.dirty, e.stored, e.holders
    local kind = d.kind
    local left = 0 -- ms until the state is fresh
    if kind == 0 then
      local rest = d.w
      if s1 == e.n1 then rest = d.w - e.n2 elseif s2 + s3 > 0 then rest = d.w * (s1 - e.n1 + 1) end
      if s3 > 0 then left = (rest + d.w) / 1e6 elseif s2 > 0 then left = rest / 1e6 end
    elseif kind == 1 then
      if s1 >= e.n1 then left = (s1 - e.n1 + 1) / 1e3 end
      if s1 == e.n1 and s2 <= e.n2 then left = 0 end
    elseif s3 > 0 then
      left = d.w / 1e6
    end
    local held = 0
    if holders then
      -- This member is first: of more than 255, the one that reported longest ago is dropped.
      if e.own > 0 then table.insert(holders, 1, me .. pack('<dI4', e.own, seconds)) end
      held = min(#holders, 255)
      if held > 0 and left < 6000 then left = 6000 end
    end
    if left > ttl then ttl = left end
    -- A state that was refunded stays until the key expires: without it, members would
    -- restore what they remember.
    local text = ''
    if left > 0 or stored then
      text = pack('<c6c6Bddd', d.field, dirty and token or stored or token, held, s1, s2, s3)
      if held > 0 then text = text .. table.concat(holders, '', 1, held) end
      write = write or dirty
    end
    e.text = text
    local place = e.place
    if place == 0 then place = #pieces + 1 end
    pieces[place] = e
  end
  for j = 1, #pieces do
    local e = pieces[j]
    local text
    if e then
      text, e.at = e.text, e.text ~= '' and len or 0
    else
      text = sub(v, at[j], at[j + 1] - 1)
    end
    pieces[j], len = text, len + #text
  end
  len = (len - 5) / 37 -- how many records it has, if none has holders
  if len % 1 > 0 or len > 255 then len = 0 end
  if write then
    -- The key lives somewhat longer, so that its end does not change with each request.
    local want = seconds + ceil(min(ttl, 1e11) / 1000) + 3
    local set = {'SET', KEYS[k], '', 'KEEPTTL'}
    if ends < want then
      ends = want + ceil(min(max(ttl / 4000, 15), 60))
      set[4], set[5] = 'EXAT', ends
    end
    set[3] = pack('<I4', ends) .. table.concat(pieces)
    call(unpack(set))
  end
  for j = i + 1, i + count do
    local e = E[j]
    local has, r, swaps = 0, '', e.d.kind < 3
    if not e.same or swaps then r = pack('<ddd', e.s1, e.s2, e.s3) end
    if not e.same then has = 1 end
    if e.holders then has, r = has + 2, r .. pack('<d', e.others) end
    if e.dirty then has = has + 4
    elseif not e.same then r = r .. e.stored
    end
    if swaps then
      local place = e.at
      if not (write or e.stored) or place > 65535 then place = 0 end
      has, r = has + 8, r .. pack('<HI4B', place, ends, len)
    end
    size = size + 1
    out[size] = string.char(has) .. r
  end
  i = i + count
end
return string.char(min(bad, 255)) .. table.concat(out)
