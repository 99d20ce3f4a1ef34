
if not alive() then
  return { 0 }
end
local expires_at = now + hold
for level = 1, 3 do
  enter(level, expires_at)
end
redis.call('HSET', held_key, 'expires_at', expires_at)
keep(held_key, hold)
return { expires_at }
