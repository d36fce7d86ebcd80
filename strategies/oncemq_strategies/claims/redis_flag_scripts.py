"""Scripts for flags inside Redis: each compares the owner, and may be applied twice with the effect of once.

A flag is a hash with the fields state, owner, until (ms, Redis' own clock), key, and then result, print and reason.

    (none) ─claim→ pending ─start→ started ─finish→ success
                      │               ├─────finish→ failed
                      └──── drop ─────┘   (none)
    pending, lease over → pending of another owner: its handler was never called
    started or checking, lease over; failed → checking of another owner, which must verify
"""

from oncemq.redis.call import Script

_NOW = """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# KEYS flag · ARGV owner, lease in ms, time to live in ms, key, pending or started
# → {'ours'} | {'foreign'} | {'success', result or '', print} | {'doubt', reason, print}
CLAIM = Script(
    _NOW
    + """
local flag = redis.call('hmget', KEYS[1], 'state', 'owner', 'until', 'result', 'print', 'reason')
local state, owner = flag[1], ARGV[1]
if state == 'success' then return {state, flag[4] or '', flag[5] or ''} end
if state and state ~= 'failed' then
    if flag[2] == owner then
        if state == 'checking' then return {'doubt', flag[6] or '', flag[5] or ''} end
        return {'ours'}
    end
    if tonumber(flag[3]) > now then return {'foreign'} end
end
if not state or state == 'pending' then
    redis.call('hset', KEYS[1], 'state', ARGV[5], 'owner', owner, 'until', now + ARGV[2], 'key', ARGV[4])
    redis.call('pexpire', KEYS[1], ARGV[3])
    return {'ours'}
end
redis.call('hset', KEYS[1], 'state', 'checking', 'owner', owner, 'until', now + ARGV[2])
redis.call('pexpire', KEYS[1], ARGV[3])
return {'doubt', flag[6] or 'its process died or was cut off', flag[5] or ''}
"""
)

# KEYS flag · ARGV owner, lease in ms, state from, state to → 1: done, also if it was before; 0: not ours any more
MOVE = Script(
    _NOW
    + """
local flag = redis.call('hmget', KEYS[1], 'state', 'owner')
if flag[2] ~= ARGV[1] then return 0 end
if flag[1] == ARGV[4] then return 1 end
if flag[1] ~= ARGV[3] then return 0 end
redis.call('hset', KEYS[1], 'state', ARGV[4], 'until', now + ARGV[2])
return 1
"""
)

# KEYS flag · ARGV owner, success or failed, time to live in ms, result or '', print, reason
# → 1: written, also if it was before; 0: not ours any more
FINISH = Script(
    """
local flag = redis.call('hmget', KEYS[1], 'state', 'owner')
if flag[2] ~= ARGV[1] then return 0 end
if flag[1] == ARGV[2] then return 1 end
if flag[1] == 'success' or flag[1] == 'failed' then return 0 end
redis.call('hdel', KEYS[1], 'until')
redis.call('hset', KEYS[1], 'state', ARGV[2], 'result', ARGV[4], 'reason', ARGV[6])
if ARGV[5] ~= '' then redis.call('hset', KEYS[1], 'print', ARGV[5]) end
redis.call('pexpire', KEYS[1], ARGV[3])
return 1
"""
)

# KEYS flag · ARGV owner → 1: deleted; 0: not ours, or it has an end
DROP = Script(
    """
local flag = redis.call('hmget', KEYS[1], 'state', 'owner')
if flag[2] ~= ARGV[1] or (flag[1] ~= 'pending' and flag[1] ~= 'started') then return 0 end
return redis.call('del', KEYS[1])
"""
)

# KEYS flag · ARGV owner, lease in ms, time to live in ms → 1: renewed; 0: not ours any more
RENEW = Script(
    _NOW
    + """
local flag = redis.call('hmget', KEYS[1], 'owner', 'until')
if flag[1] ~= ARGV[1] or not flag[2] then return 0 end
redis.call('hset', KEYS[1], 'until', now + ARGV[2])
redis.call('pexpire', KEYS[1], ARGV[3])
return 1
"""
)

# KEYS flag → 1: deleted, or there was none; 0: its handler may be running
FORGET = Script(
    """
local state = redis.call('hget', KEYS[1], 'state')
if state and state ~= 'success' and state ~= 'failed' then return 0 end
redis.call('del', KEYS[1])
return 1
"""
)
