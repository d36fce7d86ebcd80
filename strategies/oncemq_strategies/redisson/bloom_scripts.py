"""Scripts for Bloom filters inside Redis: bits in a string, the filter's settings in a hash, as in Redisson.

A filter may be deleted and created again with another size at any time, so each script compares the size that its
bits were computed for, and otherwise answers {0, size, hashIterations, expectedInsertions, falseProbability}.
"""

from oncemq.redis.call import Script

_COMPARE = """
local have = redis.call('hmget', KEYS[2], 'size', 'hashIterations', 'expectedInsertions', 'falseProbability')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] then
    return {0, have[1] or '', have[2] or '', have[3] or '', have[4] or ''}
end
local per = tonumber(ARGV[2])
"""

_ADD = """
for i = START, #ARGV, per do
    local new = 0
    for j = i, i + per - 1 do
        if redis.call('setbit', KEYS[1], ARGV[j], 1) == 0 then new = 1 end
    end
    answer[#answer + 1] = new
end
"""

# KEYS bits, settings · ARGV size, iterations, expected, false positives → 1: created, 0: it existed
MAKE = Script(
    """
if redis.call('exists', KEYS[2]) == 1 then return 0 end
redis.call('hset', KEYS[2], 'size', ARGV[1], 'hashIterations', ARGV[2], 'expectedInsertions', ARGV[3],
    'falseProbability', ARGV[4])
return 1
"""
)

# KEYS bits, settings · ARGV size, iterations, then the bits of each value → {1, for each value 1: new, 0: maybe not}
ADD = Script(_COMPARE + "local answer = {1}" + _ADD.replace("START", "3") + "return answer")

# the same → {1, for each value 1: may have been added, 0: was not}
CONTAINS = Script(
    _COMPARE
    + """
local answer = {1}
for i = 3, #ARGV, per do
    local maybe = 1
    for j = i, i + per - 1 do
        if redis.call('getbit', KEYS[1], ARGV[j]) == 0 then maybe = 0; break end
    end
    answer[#answer + 1] = maybe
end
return answer
"""
)

# KEYS bits, settings, the same two of the previous generation, mark of the generation's youth
# ARGV size, iterations, ms to remember, bytes to count bits in, settings of a new generation (four fields as in
#      MAKE), then the bits of each value
# → {1, bits that are set in those bytes, for each value 1: new, 0: maybe not}
# A generation that is no longer young is replaced by the next one. Settings without an expiry were made by other
# programs, which alone decide how long their filter lives.
FILL = Script(
    """
local foreign = redis.call('pttl', KEYS[2]) == -1
if not foreign and redis.call('exists', KEYS[2]) == 1 and redis.call('exists', KEYS[5]) == 0 then
    redis.call('del', KEYS[3], KEYS[4])
    if redis.call('exists', KEYS[1]) == 1 then
        redis.call('rename', KEYS[1], KEYS[3])
        redis.call('pexpire', KEYS[3], ARGV[3])
    end
    redis.call('rename', KEYS[2], KEYS[4])
    redis.call('pexpire', KEYS[4], ARGV[3])
end
if redis.call('exists', KEYS[2]) == 0 then
    redis.call('hset', KEYS[2], 'size', ARGV[5], 'hashIterations', ARGV[6], 'expectedInsertions', ARGV[7],
        'falseProbability', ARGV[8])
    redis.call('pexpire', KEYS[2], 2 * ARGV[3])
    redis.call('set', KEYS[5], '1', 'px', ARGV[3])
end
"""
    + _COMPARE
    + "local answer = {1, 0}"
    + _ADD.replace("START", "9")
    + """
answer[2] = redis.call('bitcount', KEYS[1], 0, ARGV[4] - 1)
if not foreign then
    redis.call('pexpire', KEYS[1], 2 * ARGV[3])
    redis.call('pexpire', KEYS[2], 2 * ARGV[3])
end
return answer
"""
)
