"""What runs inside Redis: one script settles and admits a batch of requests, another tells gateways of one another.

Every gateway alone writes its own fields, as absolute counts that it knows; a script lost or run twice does them no
harm. Redis' own clock says which gateways are alive, so that theirs need not agree.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

LIVE_S: Final = 3
"""A gateway that has been silent for longer holds nothing."""
KEEP_S: Final = 600
"""Its fields are removed after this."""


@dataclass(frozen=True, slots=True)
class Script:
    """Lua, and the name that Redis knows it by once it has run."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


GRANTED: Final = 0
OVER_RPM: Final = 1
OVER_TPM: Final = 2
OVER_RPS: Final = 3
NO_SLOT: Final = 4

ADMIT: Final = Script(
    """
-- KEYS[1] the gateways; the others are named by their place in KEYS. ARGV: own field, live_s, keep_s, a document:
--   own      [[place, slots held]], every slots hash named
--   write    [place], slots hashes to bring up to date
--   tokens   [[place, amount, ttl_ms]], an amount below 0 is taken back
--   back     [place], counters of a model's requests, one request to take back from each
--   asked    [[rpm, limit, is_counted, tpm, limit, tokens, rps, limit, window_ms, cap, [slots hash, ...]]], 0: no such
-- Answers {1 when Redis had not known this gateway, {verdict, rpm, tpm, which slots hash}...}
local field, live_s, keep_s = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local doc = cjson.decode(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local answer = { redis.call('ZADD', KEYS[1], now, field) }

local live
local function is_live(gateway)
  if not live then
    live = {}
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now - live_s, '+inf')) do live[name] = true end
  end
  return live[gateway]
end

local function count(place) return tonumber(redis.call('GET', KEYS[place]) or 0) or 0 end

-- A lifetime is set where there is none, so that retries do not stretch a window.
local function add(place, amount, ttl_ms)
  local total = redis.call('INCRBY', KEYS[place], amount)
  if redis.call('PTTL', KEYS[place]) == -1 then redis.call('PEXPIRE', KEYS[place], ttl_ms) end
  return total
end

local function take_back(place, amount)
  local there = count(place)
  if there > 0 then redis.call('DECRBY', KEYS[place], math.min(there, amount)) end
end

local own, others, changed = {}, {}, {}
for _, pair in ipairs(doc.own) do own[pair[1]] = pair[2] end
for _, place in ipairs(doc.write) do changed[place] = true end

local function running_elsewhere(place)
  if not others[place] then
    local sum, all = 0, redis.call('HGETALL', KEYS[place])
    for at = 1, #all, 2 do
      if all[at] ~= field then
        if is_live(all[at]) then
          sum = sum + (tonumber(all[at + 1]) or 0)
        elseif not redis.call('ZSCORE', KEYS[1], all[at]) then
          redis.call('HDEL', KEYS[place], all[at])
        end
      end
    end
    others[place] = sum
  end
  return others[place]
end

for _, change in ipairs(doc.tokens) do
  if change[2] > 0 then add(change[1], change[2], change[3]) else take_back(change[1], -change[2]) end
end
for _, place in ipairs(doc.back) do take_back(place, 1) end

local function admit(c)
  local rpm, tpm = -1, -1
  if c[1] > 0 then
    rpm = count(c[1])
    if c[3] == 1 then
      if rpm >= c[2] then return { 1, rpm, tpm, 0 } end
      rpm = add(c[1], 1, 60000)
    end
    tpm = count(c[4])
    if tpm >= c[5] then return { 2, rpm, tpm, 0 } end
  end
  if c[7] > 0 and count(c[7]) >= c[8] then return { 3, rpm, tpm, 0 } end
  local slot = 0
  if c[10] > 0 then
    for _, place in ipairs(c[11]) do
      if running_elsewhere(place) + own[place] < c[10] then slot = place break end
    end
    if slot == 0 then return { 4, rpm, tpm, 0 } end
    own[slot] = own[slot] + 1
    changed[slot] = true
  end
  if c[7] > 0 then add(c[7], 1, c[9]) end
  if c[1] > 0 and c[6] > 0 then tpm = add(c[4], c[6], 60000) end
  return { 0, rpm, tpm, slot }
end

for _, asked in ipairs(doc.asked) do answer[#answer + 1] = admit(asked) end

for place in pairs(changed) do
  if own[place] > 0 then
    redis.call('HSET', KEYS[place], field, own[place])
    redis.call('EXPIRE', KEYS[place], keep_s)
  else
    redis.call('HDEL', KEYS[place], field)
  end
end
return answer
"""
)

EXCHANGE: Final = Script(
    """
-- KEYS: the gateways, what they have running. ARGV: own field, live_s, keep_s, own counts ('' for the same as before).
-- Answers {1 when Redis had not known this gateway, 1 when it has no counts of it, its time,
-- {gateway, counts, ...} of the others that are alive}
local field, live_s, keep_s = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local new = redis.call('ZADD', KEYS[1], now, field)
redis.call('EXPIRE', KEYS[1], keep_s)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - keep_s)
if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], field, ARGV[4]) end
local is_missing = 1 - redis.call('HEXISTS', KEYS[2], field)
redis.call('EXPIRE', KEYS[2], keep_s)
local live, others = {}, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now - live_s, '+inf')) do live[name] = true end
local all = redis.call('HGETALL', KEYS[2])
for at = 1, #all, 2 do
  if not live[all[at]] then
    if not redis.call('ZSCORE', KEYS[1], all[at]) then redis.call('HDEL', KEYS[2], all[at]) end
  elseif all[at] ~= field then
    others[#others + 1] = all[at]
    others[#others + 1] = all[at + 1]
  end
end
return { new, is_missing, time[1] .. '.' .. string.format('%06d', time[2]), others }
"""
)

LEAVE: Final = Script(
    """
-- KEYS: the gateways, what they have running, slots hashes. ARGV: own field. A gateway that ends in order.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
for at = 3, #KEYS do redis.call('HDEL', KEYS[at], ARGV[1]) end
return 0
"""
)
