-- An edge's first word on a connection: from here on only this epoch counts.
-- ARGV: edge, epoch, now_ms (0: this server's clock). Answers {last number, id of each reservation, ...}.
local call = redis.call
local mine = 'llmgw:ledger:e:' .. ARGV[1]
local had = call('HGET', mine, '#epoch')
if had and tonumber(had) > tonumber(ARGV[2]) then return {'fenced'} end
local now = tonumber(ARGV[3])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
call('HSET', mine, '#epoch', ARGV[2])
call('PERSIST', mine)
call('ZADD', 'llmgw:ledger:edges', string.format('%.0f', now), ARGV[1])
local found = {call('HGET', mine, '#number') or '0'}
for _, id in ipairs(call('HKEYS', mine)) do
  if id:sub(1, 1) ~= '#' then found[#found + 1] = id end
end
return found
