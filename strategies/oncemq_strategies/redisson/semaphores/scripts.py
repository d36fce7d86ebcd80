"""Scripts for semaphores inside Redis, in Redisson's data: each may be applied twice in a row with the effect of once.

A semaphore is a number, the permits that are left. That a change was made is noted in a key of its own for a moment, by
which the repetition of a change whose answer was lost is recognized. A semaphore whose permits expire has, beside that
number, a sorted set of its given permits with the times in ms at which they end; a permit's name makes repetitions harmless.
"""

from oncemq.redis.call import Script
from oncemq_strategies.redisson.lock_scripts import TELLING

MARKED_MS = 30_000
"""How long a change is remembered: longer than its caller waits for an answer, and repeats it."""

_MARKED = """
local made = redis.call('get', KEYS[2])
if made then return tonumber(made) end
local function mark(answer)
    redis.call('set', KEYS[2], answer, 'px', ARGV[2])
    return answer
end
"""

# KEYS semaphore, mark · ARGV permits, ms of the mark → 1: taken; 0: too few are left
TAKE = Script(
    _MARKED
    + """
local value = redis.call('get', KEYS[1])
if not value or tonumber(value) < tonumber(ARGV[1]) then return 0 end
mark(1)
redis.call('decrby', KEYS[1], ARGV[1])
return 1
"""
)

# KEYS semaphore, mark · ARGV permits, ms of the mark, '1' in a cluster, channel → 1
GIVE = Script(
    "local CLUSTER = ARGV[3]"
    + TELLING
    + _MARKED
    + """
mark(1)
tell(ARGV[4], redis.call('incrby', KEYS[1], ARGV[1]))
return 1
"""
)

# KEYS semaphore, mark · ARGV permits, ms of the mark, '1' in a cluster, channel → 1: it is new; 0: it had permits already
SET = Script(
    "local CLUSTER = ARGV[3]"
    + TELLING
    + _MARKED
    + """
if redis.call('exists', KEYS[1]) == 1 then return 0 end
mark(1)
redis.call('set', KEYS[1], ARGV[1])
tell(ARGV[4], ARGV[1])
return 1
"""
)

# KEYS semaphore, mark · ARGV unused, ms of the mark → the permits that were left
DRAIN = Script(
    _MARKED
    + """
local value = redis.call('get', KEYS[1])
if not value then return 0 end
mark(value)
redis.call('set', KEYS[1], 0)
return tonumber(value)
"""
)

# One clock decides for all processes when a permit ends: the server's.
_COLLECT = (
    "local CLUSTER, CHANNEL = ARGV[1], ARGV[2]"
    + TELLING
    + """
local time = redis.call('time')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)
local function collect()
    local ended = redis.call('zrangebyscore', KEYS[2], 0, NOW, 'limit', 0, 1000)
    if #ended == 0 then return end
    redis.call('zrem', KEYS[2], unpack(ended))
    local value = redis.call('incrby', KEYS[1], #ended)
    if value > 0 then tell(CHANNEL, value) end
end
"""
)

# KEYS semaphore, permits · ARGV '1' in a cluster, channel, lease in ms, permit's name → -3: taken; else ms until the next
# permit ends (-1: none does)
TAKE_LEASE = Script(
    _COLLECT
    + """
if redis.call('zscore', KEYS[2], ARGV[4]) then return -3 end
collect()
local value = redis.call('get', KEYS[1])
if value and tonumber(value) > 0 then
    redis.call('decr', KEYS[1])
    redis.call('zadd', KEYS[2], NOW + ARGV[3], ARGV[4])
    local ends = redis.call('pttl', KEYS[1])
    if ends > 0 then redis.call('pexpire', KEYS[2], ends) end
    return -3
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
-- Redisson's number for permits that never end.
if not first[2] or tonumber(first[2]) >= 922337203685477 then return -1 end
return math.max(0, first[2] - NOW)
"""
)

# KEYS semaphore, permits · ARGV '1' in a cluster, channel, permit's name → nil: unknown; 0: it had ended; 1: released;
# 2: released, and waiters were not notified
GIVE_LEASE = Script(
    _COLLECT
    + """
local ends = redis.call('zscore', KEYS[2], ARGV[3])
if not ends then return nil end
redis.call('zrem', KEYS[2], ARGV[3])
local told = tell(CHANNEL, redis.call('incr', KEYS[1]))
if tonumber(ends) <= NOW then return 0 end
return told
"""
)

# KEYS semaphore, permits · ARGV '1' in a cluster, channel, lease in ms, permit's name → 1: ours for at least so long; 0: it
# has ended
EXTEND_LEASE = Script(
    _COLLECT
    + """
local ends = tonumber(redis.call('zscore', KEYS[2], ARGV[4]) or '0')
if ends <= NOW then return 0 end
if ends < NOW + ARGV[3] then redis.call('zadd', KEYS[2], NOW + ARGV[3], ARGV[4]) end
return 1
"""
)

# KEYS semaphore, permits · ARGV '1' in a cluster, channel → the permits that are left
LEFT = Script(_COLLECT + "collect() return tonumber(redis.call('get', KEYS[1]) or '0')")
