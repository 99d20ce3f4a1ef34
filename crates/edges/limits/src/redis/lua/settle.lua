
if not alive() then
  return { 0 }
end
local held = redis.call('HMGET', held_key, 'tokens', 'cost', 'day', 'month')
redis.call('DEL', held_key)
local charge = {
  -- A request that never ran is given back itself.
  requests = ARGV[22] == '1' and -1 or 0,
  tokens = tokens - tonumber(held[1]),
  cost = cost - tonumber(held[2]),
  day = tonumber(held[3]),
  month = tonumber(held[4]),
}
for level = 1, 3 do
  book(level, charge)
  if limit(level, CONCURRENT) then
    redis.call('ZREM', live_key(level), id)
  end
end
return { 1 }
