"""Scripts for a read-write lock inside Redis, in Redisson's data: each may be applied twice in a row with the effect of once.

The lock is a hash: `mode` is `read` or `write`, and each owner is a field with the number of its holds. Every hold of a
reader has a key of its own that ends with that reader's lease, since the hash ends with the longest of all leases: by
these keys the release of the last living reader finds that the others are dead.
"""

from oncemq.redis.call import Script
from oncemq_strategies.redisson.lock_scripts import TELLING

FOREIGN = -4
"""The answer when the name is a lock of another kind."""

# KEYS lock, key of this hold · ARGV lease in ms, owner, holds from now on (more than 1: it must be ours already),
# the same owner as a writer → nil: ours; -3: it was lost; -4: a lock of another kind; else ms until the writer's lease ends
ACQUIRE_READ = Script(
    """
local lease, owner, holds = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local mode = redis.call('hget', KEYS[1], 'mode')
if holds > 1 and redis.call('hexists', KEYS[1], owner) == 0 then return -3 end
if not mode and redis.call('exists', KEYS[1]) == 1 then return -4 end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[4]) == 0 then return redis.call('pttl', KEYS[1]) end
-- Before anything is held: in a cluster it fails while its slot moves.
redis.call('set', KEYS[2], 1, 'px', lease)
if not mode then redis.call('hset', KEYS[1], 'mode', 'read') end
redis.call('hset', KEYS[1], owner, holds)
if redis.call('pttl', KEYS[1]) < lease then redis.call('pexpire', KEYS[1], lease) end
return nil
"""
)

# KEYS lock · ARGV lease in ms, owner, holds from now on → as ACQUIRE_READ
ACQUIRE_WRITE = Script(
    """
local lease, owner, holds = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local mode = redis.call('hget', KEYS[1], 'mode')
local mine = mode == 'write' and redis.call('hexists', KEYS[1], owner) == 1
if holds > 1 and not mine then return -3 end
if not mode and redis.call('exists', KEYS[1]) == 1 then return -4 end
if mode and not mine then return redis.call('pttl', KEYS[1]) end
redis.call('hset', KEYS[1], 'mode', 'write')
redis.call('hset', KEYS[1], owner, holds)
if redis.call('pttl', KEYS[1]) < lease then redis.call('pexpire', KEYS[1], lease) end
return nil
"""
)

# KEYS lock, key of the released hold · ARGV lease in ms, owner, holds left, '1' in a cluster, channel, what the keys of
# holds begin with → nil: not ours; 0: we or other readers still hold it; 1: free; 2: free, and waiters were not notified
RELEASE_READ = Script(
    "local CLUSTER = ARGV[4]"
    + TELLING
    + """
local owner, left = ARGV[2], tonumber(ARGV[3])
if redis.call('hexists', KEYS[1], owner) == 0 then return nil end
redis.call('del', KEYS[2])
if left > 0 then
    redis.call('hset', KEYS[1], owner, left)
    return 0
end
redis.call('hdel', KEYS[1], owner)
if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
local longest = 0
local fields = redis.call('hgetall', KEYS[1])
for index = 1, #fields, 2 do
    for hold = tonumber(fields[index + 1]) or 0, 1, -1 do
        local ends = redis.call('pttl', ARGV[6] .. ':' .. fields[index] .. ':rwlock_timeout:' .. hold)
        longest = math.max(longest, ends)
    end
end
if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    return 0
end
redis.call('del', KEYS[1])
return tell(ARGV[5])
"""
)

# KEYS lock · ARGV lease in ms, owner, holds left, '1' in a cluster, channel → as RELEASE_READ; after the last hold of a
# writer who also reads, readers may join
RELEASE_WRITE = Script(
    "local CLUSTER = ARGV[4]"
    + TELLING
    + """
local lease, owner, left = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if redis.call('hget', KEYS[1], 'mode') ~= 'write' or redis.call('hexists', KEYS[1], owner) == 0 then return nil end
if left > 0 then
    redis.call('hset', KEYS[1], owner, left)
    if redis.call('pttl', KEYS[1]) < lease then redis.call('pexpire', KEYS[1], lease) end
    return 0
end
redis.call('hdel', KEYS[1], owner)
if redis.call('hlen', KEYS[1]) > 1 then
    redis.call('hset', KEYS[1], 'mode', 'read')
else
    redis.call('del', KEYS[1])
end
return tell(ARGV[5], '1')
"""
)

# KEYS lock · ARGV lease in ms, owner, what the keys of holds begin with → 1: ours for at least so long; 0: lost
EXTEND_READ = Script(
    """
local lease = tonumber(ARGV[1])
local holds = tonumber(redis.call('hget', KEYS[1], ARGV[2]) or '')
if not holds then return 0 end
for hold = holds, 1, -1 do
    local key = ARGV[3] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. hold
    -- One that has ended is set again: no writer came meanwhile, as the hash still has its reader.
    if redis.call('pttl', key) < lease then redis.call('set', key, 1, 'px', lease) end
end
if redis.call('pttl', KEYS[1]) < lease then redis.call('pexpire', KEYS[1], lease) end
return 1
"""
)

# KEYS lock → 1: read by any owner; 0: not
IS_READ = Script(
    """
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == 'read' or (mode == 'write' and redis.call('hlen', KEYS[1]) > 2) then return 1 end
return 0
"""
)

# KEYS lock → 1: written by any owner; 0: not
IS_WRITTEN = Script("if redis.call('hget', KEYS[1], 'mode') == 'write' then return 1 end return 0")
