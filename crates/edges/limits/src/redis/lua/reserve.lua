
local known = alive()
if known then
  return answer(1, known)
end

local need = { 1, tokens, tokens, 1, cost }
for level = 1, 3 do
  local used = balance(level)
  for kind = 1, 5 do
    local most = limit(level, kind)
    if most and used[kind] + need[kind] * UNIT[kind] > most * UNIT[kind] then
      return answer(0, 0)
    end
  end
end

local expires_at = now + hold
for level = 1, 3 do
  book(level, { requests = 1, tokens = tokens, cost = cost, day = today, month = month })
  enter(level, expires_at)
end
redis.call('HSET', held_key, 'expires_at', expires_at, 'tokens', tokens, 'cost', cost, 'day', today, 'month', month)
keep(held_key, hold)
return answer(1, expires_at)
