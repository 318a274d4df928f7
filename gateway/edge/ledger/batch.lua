-- One batch of an edge's operations on the ledger, whole or not at all.
--
-- ARGV: edge, epoch, previous, number, now_ms (0: this server's clock), window_ms, lease_ms, look (1: give back what
-- dead edges held), and then the operations. A batch is applied only when its edge's last one was `previous`, so that none
-- is lost unseen or applied twice; only in the edge's newest epoch, so that nothing an older connection left is.
--
-- Operations, in order:
--   1, id, count, record ...               reserve by the first record that fits, or refuse
--   2, id, record, tokens, money, ms       settle: what was held goes, what was used stays; ms it took
--   3, id, record                          reserve without asking: it was admitted before, or elsewhere
--   4, id                                  give back what is held under this id
-- A record is msgpack, {tokens, money, {account, ...}}, an account {name, rpm, tpm, concurrent, budget, period}; -1 says nothing.
--
-- Answers {'ok', was forgotten, result of each 1, ...}, or {'gap', last}, or {'fenced'}. A result is
-- {record that fits, requests left, of, tokens left, of, money left, of, money left in each budget ...} (-1: nothing
-- says so), or
-- {0, account, kind, wait_ms, now that is used, of it held}.
local call, floor, format = redis.call, math.floor, string.format
local BIN_MS = 100
local KEEP_S = 86400 -- what nobody has used for a day is forgotten
local ROOT = 'llmgw:ledger:'
local EDGES = ROOT .. 'edges'
local FIRST_GUESS_MS = 10000 -- how long a request takes, until one has told

local edge, epoch = ARGV[1], tonumber(ARGV[2])
local now, window_ms, lease_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local bin, bins = floor(now / BIN_MS), floor(window_ms / BIN_MS)
local mine = ROOT .. 'e:' .. edge

local head = call('HMGET', mine, '#epoch', '#number')
if head[1] and tonumber(head[1]) > epoch then return {'fenced'} end
if (head[2] or '0') ~= ARGV[3] then return {'gap', head[2] or '0'} end

local function whole(n) return format('%.0f', n) end

-- Accounts: read once a batch, written once. r, t: requests and tokens in the window, the newest bin b with br and bt
-- among them; older bins are the list; o is the oldest of these, 0 for none. c: at once; h: tokens held. d, f: how long
-- a request takes (ms), and what part of its reservation it uses; both rise at once and fall slowly.
local accounts, touched = {}, {}
local FIELDS = {'b', 'br', 'bt', 'o', 'r', 't', 'c', 'h', 'd', 'f'}

local function advance(s)
  if s.b >= bin then return end -- a clock that was put back must not empty the window
  if s.b < bin - bins then
    if s.o > 0 then call('DEL', s.list) end
    s.o, s.r, s.t = 0, 0, 0
  else
    if s.br ~= 0 or s.bt ~= 0 then
      call('RPUSH', s.list, format('%.0f:%.0f:%.0f', s.b, s.br, s.bt))
      if s.o == 0 then s.o = s.b end
    end
    while s.o > 0 and s.o < bin - bins do
      local entry = call('LPOP', s.list)
      if entry then
        local _, r, t = entry:match('(%d+):(%d+):(%d+)')
        s.r, s.t = s.r - r, s.t - t
      end
      local first = call('LINDEX', s.list, 0)
      s.o = first and tonumber(first:match('%d+')) or 0
    end
    if s.o > 0 then call('EXPIRE', s.list, KEEP_S) end
  end
  s.b, s.br, s.bt, s.aged = bin, 0, 0, true
end

local function account(name)
  local s = accounts[name]
  if not s then
    local v = call('HMGET', ROOT .. 'a:' .. name, unpack(FIELDS))
    s = {key = ROOT .. 'a:' .. name, list = ROOT .. 'w:' .. name}
    for i, field in ipairs(FIELDS) do s[field] = tonumber(v[i] or 0) end
    accounts[name] = s
    advance(s)
  end
  return s
end

-- Money by period: s spent, h held, seeded: what was spent before this server knew is in it.
local purses = {}

local function purse(a)
  local name = a[1] .. ':' .. a[6]
  local p = purses[name]
  if not p then
    local v = call('HMGET', ROOT .. 'm:' .. name, 's', 'h', 'k')
    p = {key = ROOT .. 'm:' .. name, name = name, s = tonumber(v[1] or 0), h = tonumber(v[2] or 0), seeded = v[3]}
    purses[name] = p
  end
  return p
end

-- Milliseconds until `need` of what is logged (requests: field 2, tokens: field 3) is older than the window.
local function until_aged(s, field, need)
  local left = need
  for _, entry in ipairs(call('LRANGE', s.list, 0, -1)) do
    local b, r, t = entry:match('(%d+):(%d+):(%d+)')
    left = left - (field == 2 and r or t)
    if left <= 0 then return (b + bins + 1) * BIN_MS - now end
  end
  return (s.b + bins + 1) * BIN_MS - now
end

local function lasts(s) return s.d > 0 and s.d or FIRST_GUESS_MS end

local function until_tokens(s, tokens, limit)
  local over = s.t + s.h + tokens - limit
  if over <= s.t then return until_aged(s, 3, over) end -- true whatever is held will use
  local expected = s.d > 0 and s.f < 1 and floor(s.h * s.f + 1e-6) or s.h
  over = s.t + expected + tokens - limit
  if over <= 0 then return lasts(s) end
  if over <= s.t then return math.max(lasts(s), until_aged(s, 3, over)) end
  return lasts(s) + window_ms + BIN_MS
end

local REQUESTS, TOKENS, CONCURRENT, BUDGET, UNSEEDED = 1, 2, 3, 4, 5

-- Why `record` does not fit: a budget first, else what takes longest, else that nobody knows. nil: it fits.
local function refusal(record)
  local tokens, money = record[1], record[2]
  local found, unseeded
  local function say(i, kind, wait, used, held)
    if not found or (found[3] ~= BUDGET and (kind == BUDGET or wait > found[4])) then
      found = {0, i, kind, floor(wait), used, held}
    end
  end
  for i, a in ipairs(record[3]) do
    local s = account(a[1])
    if a[2] >= 0 and s.r + 1 > a[2] then say(i, REQUESTS, until_aged(s, 2, s.r + 1 - a[2]), s.r, 0) end
    if a[3] >= 0 and s.t + s.h + tokens > a[3] then say(i, TOKENS, until_tokens(s, tokens, a[3]), s.t + s.h, s.h) end
    if a[4] >= 0 and s.c + 1 > a[4] then say(i, CONCURRENT, lasts(s), s.c, s.c) end
    if a[5] >= 0 and money > 0 then
      local p = purse(a)
      if not p.seeded then
        unseeded = unseeded or {0, i, UNSEEDED, 0, 0, 0}
      elseif p.s + p.h + money > a[5] then
        say(i, BUDGET, p.s + money > a[5] and 0 or lasts(s), p.s + p.h, p.h)
      end
    end
  end
  return found or unseeded
end

local function take(id, packed, record)
  local tokens, money = record[1], record[2]
  for _, a in ipairs(record[3]) do
    local s = account(a[1])
    touched[s] = true
    if a[2] >= 0 then s.r, s.br = s.r + 1, s.br + 1 end
    if a[3] >= 0 then s.h = s.h + tokens end
    if a[4] >= 0 then s.c = s.c + 1 end
    if a[5] >= 0 and money > 0 then
      local p = purse(a)
      p.h, p.dirty = p.h + money, true
    end
  end
  call('HSET', mine, id, packed)
end

-- What the tightest level leaves.
local function left(which, record)
  local found = {which, -1, -1, -1, -1, -1, -1}
  for _, a in ipairs(record[3]) do
    local s = account(a[1])
    local function tighter(at, remaining, limit)
      if limit >= 0 and (found[at + 1] < 0 or remaining < found[at]) then
        found[at], found[at + 1] = math.max(0, remaining), limit
      end
    end
    tighter(2, a[2] - s.r, a[2])
    tighter(4, a[3] - s.t - s.h, a[3])
    if a[5] >= 0 then
      local p = purse(a)
      if p.seeded then tighter(6, a[5] - p.s - p.h, a[5]) end
    end
  end
  for _, a in ipairs(record[3]) do
    if a[5] >= 0 then
      local p = purse(a)
      found[#found + 1] = p.seeded and a[5] - p.s - p.h or -1
    end
  end
  return found
end

local function settle(id, record, had, tokens, money, ms)
  for _, a in ipairs(record[3]) do
    local s = account(a[1])
    touched[s] = true
    if had then
      if a[3] >= 0 then s.h = math.max(0, s.h - record[1]) end
      if a[4] >= 0 then s.c = math.max(0, s.c - 1) end
      if ms > 0 then s.d = ms > s.d and ms or s.d * 0.9 + ms * 0.1 end
      if tokens > 0 and record[1] > 0 then
        local part = tokens / record[1]
        s.f = part > s.f and part or s.f * 0.9 + part * 0.1
      end
    end
    if a[3] >= 0 then s.t, s.bt = s.t + tokens, s.bt + tokens end
    if a[5] >= 0 then
      local p = purse(a)
      p.dirty = true
      if had then p.h = math.max(0, p.h - record[2]) end
      p.s = p.s + money
      if not p.seeded and money > 0 then
        call('SADD', ROOT .. 'u:' .. p.name, id)
        call('EXPIRE', ROOT .. 'u:' .. p.name, KEEP_S)
      end
    end
  end
end

local function give_back(key, id)
  local packed = call('HGET', key, id)
  if packed and call('HDEL', key, id) == 1 then settle(id, cmsgpack.unpack(packed), true, 0, 0, 0) end
end

local forgotten = call('ZADD', EDGES, now, edge)
if forgotten == 1 then call('PERSIST', mine) end
local results = {'ok', forgotten}

local at = 9
while at <= #ARGV do
  local code, id = ARGV[at], ARGV[at + 1]
  if code == '1' then
    local result
    local count = tonumber(ARGV[at + 2])
    for i = 1, count do
      local packed = ARGV[at + 2 + i]
      local record = cmsgpack.unpack(packed)
      local why = refusal(record)
      if not why then
        take(id, packed, record)
        result = left(i, record)
        break
      end
      result = result or why
      if why[3] ~= BUDGET then break end -- another model helps nobody who has asked too often
    end
    results[#results + 1] = result
    at = at + 3 + count
  elseif code == '2' then
    local had = call('HDEL', mine, id) == 1
    local record = cmsgpack.unpack(ARGV[at + 2])
    settle(id, record, had, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]))
    at = at + 6
  elseif code == '3' then
    local packed = ARGV[at + 2]
    if call('HEXISTS', mine, id) == 0 then take(id, packed, cmsgpack.unpack(packed)) end
    at = at + 3
  else
    give_back(mine, id)
    at = at + 2
  end
end

if ARGV[8] == '1' then
  for _, dead in ipairs(call('ZRANGEBYSCORE', EDGES, '-inf', whole(now - lease_ms), 'LIMIT', 0, 8)) do
    local key = ROOT .. 'e:' .. dead
    for _, id in ipairs(call('HKEYS', key)) do
      if id:sub(1, 1) ~= '#' then give_back(key, id) end
    end
    call('EXPIRE', key, KEEP_S) -- its last number: it may only have been asleep
    call('ZREM', EDGES, dead)
  end
end

for _, s in pairs(accounts) do
  if touched[s] or s.aged then -- a list moves on also for who is refused
    call('HSET', s.key, 'b', whole(s.b), 'br', whole(s.br), 'bt', whole(s.bt), 'o', whole(s.o), 'r', whole(s.r),
      't', whole(s.t), 'c', whole(s.c), 'h', whole(s.h), 'd', whole(s.d), 'f', format('%.4f', s.f))
  end
  if s.aged then call('EXPIRE', s.key, KEEP_S) end
end
for _, p in pairs(purses) do
  if p.dirty then call('HSET', p.key, 's', whole(p.s), 'h', whole(p.h)) end
end
call('HSET', mine, '#number', ARGV[4], '#epoch', ARGV[2])
return results
