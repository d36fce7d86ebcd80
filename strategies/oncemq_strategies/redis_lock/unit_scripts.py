"""Scripts for the locks of a unit: the fixed cost of a script is paid once for many locks.

A lock with an error (wrong type, no permission) is answered by the error text, and the others are acquired or
released all the same. Only a replica's refusal is the answer for all of them.
"""

from oncemq.redis.call import Script
from oncemq_strategies.redisson.lock_scripts import ACQUIRING, TELLING

_EACH = """
local function each(step, act)
    local answers = {}
    for at = 1, #KEYS, step do
        local fine, answer = pcall(act, at)
        -- What went wrong is a table since Redis 7, and text before.
        if not fine and type(answer) == 'table' then answer = answer.err end
        -- Said of the server and not of the lock; nothing was written before it.
        if not fine and string.find(answer, 'READONLY ', 1, true) then
            return redis.error_reply('READONLY this server is a replica')
        end
        answers[#answers + 1] = answer
    end
    return answers
end
"""

# KEYS lock, … · ARGV lease in ms, owner → for each nil: ours; ms until the holder's lease ends (-1: never); or an error
ACQUIRE_MANY = Script(
    ACQUIRING
    + _EACH
    + """
local lease = tonumber(ARGV[1])
return each(1, function(at) return acquire(KEYS[at], lease, ARGV[2], 1) end)
"""
)

# KEYS lock, token, … · ARGV as above → for each {1, token}: ours; {0, ms until the holder's lease ends}; or an error
ACQUIRE_MANY_FENCED = Script(
    ACQUIRING
    + _EACH
    + """
local lease = tonumber(ARGV[1])
return each(2, function(at) return acquire_fenced(KEYS[at], KEYS[at + 1], lease, ARGV[2], 1) end)
"""
)

# KEYS lock, … · ARGV '1' in a cluster, then for each its owner and channel → for each 1: free; 2: free, waiters not
# notified; nil: not ours; or an error
RELEASE_MANY = Script(
    "local CLUSTER = ARGV[1]"
    + TELLING
    + _EACH
    + """
return each(1, function(at)
    if redis.call('hexists', KEYS[at], ARGV[2 * at]) == 0 then return false end
    redis.call('del', KEYS[at])
    return tell(ARGV[2 * at + 1])
end)
"""
)

# KEYS lock, … · ARGV owner, … → for each 1: the owner's; 0: lost; or an error
HELD_MANY = Script(
    _EACH
    + """
return each(1, function(at) return redis.call('hexists', KEYS[at], ARGV[at]) end)
"""
)
