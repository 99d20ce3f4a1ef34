-- The head of every script: its arguments, the time, and the balances of a level.
--
-- It computes what meter.rs and calendar.rs of motet-quota compute. Every number is an integer below 2^53, so
-- sums and products of doubles are exact; integers are divided in `quotient` only, which is exact, too.

local MINUTE, DAY, MOST_USED = 60000, 86400000, 4503599627370496
local REQUESTS, TOKENS, DAY_TOKENS, CONCURRENT, BUDGET = 1, 2, 3, 4, 5
local UNIT = { MINUTE, MINUTE, 1, 1, 1 }

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local slack, hold, id = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local tokens, cost = tonumber(ARGV[5]), tonumber(ARGV[6])
local held_key = KEYS[7]

local function quotient(a, b)
  return (a - math.fmod(a, b)) / b
end

-- nil where there is none
local function limit(level, kind)
  return tonumber(ARGV[6 + (level - 1) * 5 + kind])
end

local today = quotient(now, DAY)
local month
do
  local days = today + 719468
  local era, of_era = quotient(days, 146097), math.fmod(days, 146097)
  local leap = quotient(of_era, 1460) - quotient(of_era, 36524) + quotient(of_era, 146096)
  local year = quotient(of_era - leap, 365)
  local of_year = of_era - (365 * year + quotient(year, 4) - quotient(year, 100))
  month = (era * 400 + year) * 12 + quotient(5 * of_year + 2, 153) + 2
end

local function meter_key(level)
  return KEYS[2 * level - 1]
end

local function live_key(level)
  return KEYS[2 * level]
end

-- Keeps a key for at least so long, whatever else is in it.
local function keep(key, millis)
  if millis + slack > redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, millis + slack)
  end
end

-- Of each kind: what is used; of buckets also the rate and the time of the last change, of windows the period.
local FIELDS = {
  'requests', 'requests_rate', 'requests_at', 'tokens', 'tokens_rate', 'tokens_at',
  'day_tokens', 'day', 'spent', 'month',
}

local function read(level)
  local meter = {}
  for index, value in ipairs(redis.call('HMGET', meter_key(level), unpack(FIELDS))) do
    meter[FIELDS[index]] = tonumber(value) or 0
  end
  return meter
end

local function bucket_used(meter, name)
  -- Beyond 2^53 the product is rounded, and still more than any balance.
  local back = meter[name .. '_rate'] * math.max(0, now - meter[name .. '_at'])
  return math.max(0, meter[name] - back)
end

local function window_used(meter, name, field, period)
  return meter[field] == period and meter[name] or 0
end

-- What is used by kind, when there is room for one more reply, and the rates of the buckets; 0 where there is no limit.
local function balance(level)
  local meter, row = read(level), { 0, 0, 0, 0, 0, 0, 0, 0 }
  if limit(level, REQUESTS) then row[REQUESTS], row[7] = bucket_used(meter, 'requests'), meter.requests_rate end
  if limit(level, TOKENS) then row[TOKENS], row[8] = bucket_used(meter, 'tokens'), meter.tokens_rate end
  if limit(level, DAY_TOKENS) then row[DAY_TOKENS] = window_used(meter, 'day_tokens', 'day', today) end
  if limit(level, BUDGET) then row[BUDGET] = window_used(meter, 'spent', 'month', month) end
  local most = limit(level, CONCURRENT)
  if most then
    redis.call('ZREMRANGEBYSCORE', live_key(level), '-inf', now)
    local live = redis.call('ZCARD', live_key(level))
    row[CONCURRENT] = live
    if most > 0 and live >= most then
      row[6] = tonumber(redis.call('ZRANGE', live_key(level), live - most, live - most, 'WITHSCORES')[2])
    end
  end
  return row
end

local function bounded(used)
  return math.max(0, math.min(MOST_USED, used))
end

-- Changes the balances of a level. `charge`: by how much, and the day and month that it belongs to.
local function book(level, charge)
  local meter, key, fields, lasts = read(level), meter_key(level), {}, 0
  local function set(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  local function bucket(kind, name, amount)
    local rate = limit(level, kind)
    if not rate then return end
    rate = math.max(1, rate)
    local used = bounded(bucket_used(meter, name) + amount * MINUTE)
    set(name, used)
    set(name .. '_rate', rate)
    -- The server's clock may have been set back: what came back once does not come back again.
    set(name .. '_at', math.max(now, meter[name .. '_at']))
    lasts = math.max(lasts, quotient(used, rate) + 1)
  end
  local function window(kind, name, field, period, charged, amount)
    if not limit(level, kind) or charged ~= period then return end
    set(name, bounded(window_used(meter, name, field, period) + amount))
    set(field, period)
    lasts = math.max(lasts, kind == DAY_TOKENS and DAY or 31 * DAY)
  end
  bucket(REQUESTS, 'requests', charge.requests)
  bucket(TOKENS, 'tokens', charge.tokens)
  window(DAY_TOKENS, 'day_tokens', 'day', today, charge.day, charge.tokens)
  window(BUDGET, 'spent', 'month', month, charge.month, charge.cost)
  if #fields > 0 then
    redis.call('HSET', key, unpack(fields))
    keep(key, lasts)
  end
end

local function enter(level, expires_at)
  if limit(level, CONCURRENT) then
    redis.call('ZADD', live_key(level), expires_at, id)
    keep(live_key(level), expires_at - now)
  end
end

-- The time at which the reservation expires; nil if it has ended.
local function alive()
  local expires_at = tonumber(redis.call('HGET', held_key, 'expires_at'))
  return expires_at and expires_at > now and expires_at or nil
end

local function answer(passed, expires_at)
  local row = { passed, now, expires_at }
  for level = 1, 3 do
    for _, value in ipairs(balance(level)) do
      row[#row + 1] = value
    end
  end
  return row
end
