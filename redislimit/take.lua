-- Applies reports to the states of limits and decides requests. See message.go for
-- ARGV[1] and for the reply. All times and costs are whole numbers below 2^53; where
-- products are larger, they are compared exactly.
local call, pcall, read, pack, sub = redis.call, redis.pcall, struct.unpack, struct.pack, string.sub
local floor = math.floor
local m = ARGV[1]
local token, me, floors, ndefs, pos = read('<c6c4BH', m)
local D = {}
for i = 1, ndefs do
  local d = {}
  d.field, d.kind, d.settled, d.held, d.w, d.a, d.unit, d.bu, d.br, d.cu, d.cr, d.far, d.t, pos =
    read('<c6BBBddddddddd', m, pos)
  d.most = 4 * d.a + 268435456 -- where counts saturate
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

local function whole(x) return x == x and x >= -9007199254740992 and x <= 9007199254740992 and x == floor(x) end

local bad, now = 0, nil
local function seconds()
  if not now then now = tonumber(call('TIME')[1]) end
  return now
end

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
      e.s2, e.s3 = math.max(0, e.s2 + d2), math.max(0, e.s3 + d3)
    elseif back == 1 then
      e.s2 = math.max(0, e.s2 + d3)
    end
    e.s2, e.s3 = math.min(e.s2, d.most), math.min(e.s3, d.most)
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
    if d3 ~= 0 then e.s3 = math.min(math.max(0, e.s3 + d3), d.most) end
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
        u = u + math.ceil(span / d.unit)
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

local E, n = {}, 0
for k = 1, #KEYS do
  local count, names, first = nil, {}, n
  count, pos = read('B', m, pos)
  for j = 1, count do
    n = n + 1
    local i, has, base, n1, n2
    i, has, base, n1, n2, pos = read('<HBc6dd', m, pos)
    -- All fields at once: a table that grows is made again several times.
    local e = {d = D[i + 1], key = k, base = base, n1 = n1, n2 = n2, s1 = 0, s2 = 0, s3 = 0, own = 0, others = 0,
      same = false, test = has >= 16, dirty = false, floor = has % 16 >= 8, stored = false, records = false}
    if has % 2 == 1 then e.f1, e.f2, e.f3, pos = read('<ddd', m, pos) end
    if has % 4 >= 2 then e.d1, e.d2, e.d3, pos = read('<ddd', m, pos) end
    if has % 8 >= 4 then e.own, pos = read('<d', m, pos) end
    E[n], names[j] = e, e.d.field
  end
  local got
  if count == 1 then
    local v = pcall('HGET', KEYS[k], names[1])
    got = type(v) == 'table' and v or {v}
  else
    got = pcall('HMGET', KEYS[k], unpack(names))
  end
  if got.err then
    call('DEL', KEYS[k])
    got, bad = {}, bad + 1
  end
  for j = 1, count do
    local e, v = E[first + j], got[j]
    local d = e.d
    local kind, tracked = d.kind, d.held == 1 or d.kind == 3
    if v and (#v < 30 or #v > 30 and (not tracked or (#v - 30) % 16 ~= 0)) then v, bad = false, bad + 1 end
    if v then
      e.stored, e.s1, e.s2, e.s3 = read('<c6ddd', v)
      if not (whole(e.s1) and whole(e.s2) and whole(e.s3)) or e.s2 < 0 or e.s3 < 0 then
        e.s1, e.s2, e.s3, e.stored, v, bad = 0, 0, 0, false, false, bad + 1
      end
    end
    if tracked then
      local records = {}
      if v then
        local s = seconds()
        for at = 31, #v, 16 do
          local id, amount, since = read('<c4dI4', v, at)
          if id == me then
            e.mine, e.since = amount, since
          elseif since + 5 >= s and since <= s + 60 and whole(amount) and amount > 0 then
            e.others = e.others + amount
            records[#records + 1] = sub(v, at, at + 15)
          end
        end
      end
      e.records = records
    end
    -- The state as of now. If it is far ahead, it is written, so that it advances again.
    if kind == 0 then
      if e.s1 - e.n1 > d.far then e.s1, e.dirty = e.n1, true end
      e.s2, e.s3 = math.min(e.s2, d.most), math.min(e.s3, d.most)
      if e.n1 > e.s1 or e.s2 + e.s3 == 0 then roll(e, e.n1) end
    elseif kind == 1 then
      if not v then e.s1, e.s2 = e.n1, e.n2 end
      if e.s2 >= d.unit then e.s2 = d.unit - 1 end
      if e.s1 - e.n1 > d.far then
        e.s1, e.s2 = carry(e.n1 + d.cu, e.n2 + d.cr, d.unit)
        e.dirty = true
      end
    elseif kind == 2 then
      if e.s1 - e.n1 > d.far then e.s1, e.s2, e.dirty = e.n1, e.n2, true end
      local gap = (e.n1 - e.s1) * 1000 + e.n2 - e.s2
      if e.s3 == 0 or gap >= d.w then e.s1, e.s2, e.s3 = 0, 0, 0 end
      e.s3 = math.min(e.s3, d.most)
    end
    e.same = e.stored == e.base or not e.stored
    if e.d1 then
      add(e, e.d1, e.d2, e.d3)
      e.dirty = true
    end
    if e.f1 and (not e.stored or floors == 1 or e.floor) then
      local a, b, c = e.s1, e.s2, e.s3
      raise(e, e.f1, e.f2, e.f3)
      if a ~= e.s1 or b ~= e.s2 or c ~= e.s3 then e.dirty = true end
    end
    -- What this member has is written when it changes, and every two seconds: others
    -- ignore it after five.
    if tracked and (e.own ~= (e.mine or 0) or e.own > 0 and e.since + 2 <= seconds()) then e.dirty = true end
  end
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

for i = 1, ndecisions do
  local all, dry, verdict = nil, nil, '\2'
  all, dry, pos = read('<BB', m, pos)
  local P, size = {}, 0
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
  out[#out + 1] = verdict
end

local i = 1
for k = 1, #KEYS do
  local set, sets, ttl = {}, 0, 0
  while i <= n and E[i].key == k do
    local e = E[i]
    local d = e.d
    local kind = d.kind
    local left = 0 -- ms until the state is fresh
    if kind == 0 then
      local rest = d.w
      if e.s1 == e.n1 then rest = d.w - e.n2 elseif e.s2 + e.s3 > 0 then rest = d.w * (e.s1 - e.n1 + 1) end
      if e.s3 > 0 then left = (rest + d.w) / 1e6 elseif e.s2 > 0 then left = rest / 1e6 end
    elseif kind == 1 then
      if e.s1 >= e.n1 then left = (e.s1 - e.n1 + 1) / 1e3 end
      if e.s1 == e.n1 and e.s2 <= e.n2 then left = 0 end
    elseif kind == 2 then
      if e.s3 > 0 then left = d.w / 1e6 end
    end
    local records = e.records
    if e.dirty then
      local v = pack('<c6ddd', token, e.s1, e.s2, e.s3)
      if records then
        if e.own > 0 then records[#records + 1] = me .. pack('<dI4', e.own, seconds()) end
        if #records > 0 then v = v .. table.concat(records) end
      end
      -- A state that was refunded stays until the key expires: without it, members would
      -- restore what they remember.
      if left > 0 or records and #records > 0 or e.stored then
        set[sets + 1], set[sets + 2] = d.field, v
        sets = sets + 2
      end
    end
    if records and #records > 0 and left < 6000 then left = 6000 end
    if left > ttl then ttl = left end
    if e.same and not records then
      out[#out + 1] = e.dirty and '\4' or '\0'
    else
      local has, r = 0, ''
      if not e.same then
        has, r = 1, pack('<ddd', e.s1, e.s2, e.s3)
      end
      if records then
        has, r = has + 2, r .. pack('<d', e.others)
      end
      if e.dirty then has = has + 4
      elseif not e.same then r = r .. e.stored
      end
      out[#out + 1] = string.char(has) .. r
    end
    i = i + 1
  end
  if sets > 0 then
    if sets == 2 then
      call('HSET', KEYS[k], set[1], set[2])
    else
      call('HSET', KEYS[k], unpack(set))
    end
    ttl = math.ceil(math.min(ttl, 1e11)) + 2000
    if call('PTTL', KEYS[k]) < ttl then call('PEXPIRE', KEYS[k], ttl + math.min(floor(ttl / 4), 60000)) end
  end
end
return string.char(math.min(bad, 255)) .. table.concat(out)
