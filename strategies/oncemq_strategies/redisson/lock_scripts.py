"""Scripts for locks inside Redis, in Redisson's data: each may be applied twice in a row with the effect of once.

A lock is a hash: one field, the owner, with the number of its holds. Redisson counts with HINCRBY; here the caller
passes the new number, so that a script whose answer was lost can be repeated.

Channels are arguments and not keys: while a slot moves, a cluster refuses scripts whose keys are not all in one
place, and a channel is in none.
"""

from oncemq.redis.call import Script

UNTOLD = 2
"""A release's answer when the lock is free and its waiters could not be notified."""

# taken returns false: it may be ours; -3: it was lost; else ms until the holder's lease ends (-1: never)
ACQUIRING = """
local function taken(lock, owner, holds)
    local free = redis.call('exists', lock) == 0
    if free or redis.call('hexists', lock, owner) == 0 then
        if holds > 1 then return -3 end
        if not free then return redis.call('pttl', lock) end
    end
    return false, free
end
local function hold(lock, lease, owner, holds, free)
    redis.call('hset', lock, owner, holds)
    if free or redis.call('pttl', lock) < lease then redis.call('pexpire', lock, lease) end
end
local function acquire(lock, lease, owner, holds)
    local left, free = taken(lock, owner, holds)
    if not left then hold(lock, lease, owner, holds, free) end
    return left
end
local function acquire_fenced(lock, token, lease, owner, holds)
    local left, free = taken(lock, owner, holds)
    if left then return {0, left} end
    -- Before anything is held: it fails where the token's key is something else.
    local number = redis.call('incr', token)
    hold(lock, lease, owner, holds, free)
    return {1, number}
end
"""

# KEYS lock · ARGV lease in ms, owner, holds from now on (more than 1: it must be ours already)
# → nil: ours; -3: it was lost; else ms until the holder's lease ends (-1: never)
ACQUIRE = Script(ACQUIRING + "return acquire(KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]))")

# KEYS lock, token · ARGV as above → {1, token}: ours; {0, ms until the holder's lease ends, or -3}
ACQUIRE_FENCED = Script(
    ACQUIRING + "return acquire_fenced(KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]))"
)

# KEYS token · ARGV number → the next token is higher than this
RAISE = Script(
    """
local now = tonumber(redis.call('get', KEYS[1]) or '0')
if now < tonumber(ARGV[1]) then redis.call('set', KEYS[1], ARGV[1]) end
return 1
"""
)

TELLING = """
-- The lock is free already: who may not publish has released it all the same, and waiters look for themselves.
local UNTOLD = 2
local function tell(channel, message)
    local answer = redis.pcall('publish', channel, message or '0')
    if CLUSTER == '1' then redis.pcall('spublish', channel, message or '0') end
    if type(answer) == 'table' and answer.err then return UNTOLD end
    return 1
end
"""

# KEYS lock · ARGV lease in ms, owner, holds left, '1' in a cluster, channel → nil: not ours; 0: still ours;
# 1: free; 2: free, and waiters were not notified
RELEASE = Script(
    "local CLUSTER = ARGV[4]"
    + TELLING
    + """
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if tonumber(ARGV[3]) > 0 then
    redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then redis.call('pexpire', KEYS[1], ARGV[1]) end
    return 0
end
redis.call('del', KEYS[1])
return tell(ARGV[5])
"""
)

# KEYS lock · ARGV lease in ms, owner → 1: ours for at least so long; 0: lost
EXTEND = Script(
    """
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then redis.call('pexpire', KEYS[1], ARGV[1]) end
return 1
"""
)

# KEYS lock, queue · ARGV '1' in a cluster, channel → 1: it was held; 0: it was free
FORCE = Script(
    "local CLUSTER = ARGV[1]"
    + TELLING
    + """
if redis.call('del', KEYS[1]) == 0 then return 0 end
tell(ARGV[2])
if redis.call('type', KEYS[2]).ok == 'list' then tell(ARGV[2] .. ':' .. redis.call('lindex', KEYS[2], 0)) end
return 1
"""
)

# The fair lock's queue is a list of owners; the set scores each with the time in ms until which it keeps its place.
_LEAVE_DEAD = """
while true do
    local head = redis.call('lindex', KEYS[2], 0)
    if not head then break end
    local ends = tonumber(redis.call('zscore', KEYS[3], head))
    if ends and ends > NOW then break end
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
end
"""

# KEYS lock, queue, timeouts · ARGV lease in ms, owner, holds, now in ms, wait in ms, '1' to take a place in the queue
# → nil: ours; -3: it was lost; else ms until the next attempt makes sense
ACQUIRE_FAIR = Script(
    "local NOW = tonumber(ARGV[4])"
    + _LEAVE_DEAD
    + """
local lease, owner, wait = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[5])
if redis.call('hexists', KEYS[1], owner) == 1 then
    redis.call('hset', KEYS[1], owner, ARGV[3])
    if redis.call('pttl', KEYS[1]) < lease then redis.call('pexpire', KEYS[1], lease) end
    return nil
end
if tonumber(ARGV[3]) > 1 then return -3 end
local head = redis.call('lindex', KEYS[2], 0)
if redis.call('exists', KEYS[1]) == 0 and (not head or head == owner) then
    if head then redis.call('lpop', KEYS[2]) end
    redis.call('zrem', KEYS[3], owner)
    for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
        redis.call('zincrby', KEYS[3], -wait, other)
    end
    redis.call('hset', KEYS[1], owner, 1)
    redis.call('pexpire', KEYS[1], lease)
    return nil
end
local left = redis.call('pttl', KEYS[1])
if ARGV[6] ~= '1' or redis.call('zscore', KEYS[3], owner) then return math.max(left, 0) end
local last = redis.call('lindex', KEYS[2], -1)
local ends = last and tonumber(redis.call('zscore', KEYS[3], last)) or NOW + math.max(left, 0)
redis.call('zadd', KEYS[3], ends + wait, owner)
redis.call('rpush', KEYS[2], owner)
return math.max(left, 0)
"""
)

# KEYS lock, queue, timeouts · ARGV lease in ms, owner, holds left, '1' in a cluster, channel, now in ms → as RELEASE
RELEASE_FAIR = Script(
    "local NOW = tonumber(ARGV[6]) local CLUSTER = ARGV[4]"
    + TELLING
    + _LEAVE_DEAD
    + """
local mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1
if mine and tonumber(ARGV[3]) > 0 then
    redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then redis.call('pexpire', KEYS[1], ARGV[1]) end
    return 0
end
if mine then redis.call('del', KEYS[1]) end
local head = redis.call('lindex', KEYS[2], 0)
local told = 1
if head and redis.call('exists', KEYS[1]) == 0 then told = tell(ARGV[5] .. ':' .. head) end
if mine then return told end
return nil
"""
)

# KEYS lock, queue, timeouts · ARGV owner, wait in ms, '1' in a cluster, channel → 1: it had a place; 0: it had none
LEAVE_QUEUE = Script(
    "local CLUSTER = ARGV[3]"
    + TELLING
    + """
local behind = false
for _, other in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
    if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[2]), other) end
    if other == ARGV[1] then behind = true end
end
redis.call('zrem', KEYS[3], ARGV[1])
redis.call('lrem', KEYS[2], 0, ARGV[1])
local head = redis.call('lindex', KEYS[2], 0)
if head and redis.call('exists', KEYS[1]) == 0 then tell(ARGV[4] .. ':' .. head) end
return behind and 1 or 0
"""
)
