"""Limits how many messages a second all processes of a consumer take together, by a bucket in Redis."""

import math
import threading
from collections.abc import Callable
from typing import Final

from oncemq.common.clock import Clock
from oncemq.engine.rates.rate_limit import Limit, RateLimit, burst_of
from oncemq.engine.rates.rule import RateRule
from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.call import Call, Script
from oncemq.redis.client import RedisClient

_AT_ONCE: Final = 0.1
"""Seconds whose messages a process takes from the bucket together: a question costs a round trip."""
_AGAIN: Final = 1.0
"""Seconds until a Redis that failed is asked again, at least."""
_PAUSES: Final = 5.0
"""A question that failed after so many seconds is repeated after this multiple, so that a worker waits for a sixth of its time at most."""
_SAID_FOR: Final = 60.0
"""Seconds for which an outage is not reported again: a server may answer every second question."""
_KEPT: Final = 1.0
"""Seconds for which messages that were taken from the bucket may be kept, if they are not renewed later."""

TAKE: Final = Script("""
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(known[1]) or burst, tonumber(known[2]) or now
if at < now then left = left + (now - at) * rate end
left = math.min(left, burst)
local granted = math.min(wanted, math.floor(left))
left = left - granted
redis.call('HSET', KEYS[1], 'left', string.format('%.6f', left), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate) + 60000)
if granted > 0 then return {granted, 0} end
return {0, math.ceil((1 - left) / rate)}
""")
"""Takes up to `wanted` messages from the bucket; returns how many, and the milliseconds until there is one.

KEYS: the bucket. ARGV: messages a millisecond, what it holds at most, wanted. Time is the server's.
"""


class SharedRate:
    """One process's part of a rate that all processes of a consumer share.

    While Redis is away each process keeps to the whole rate by itself. For this, all messages are counted here too:
    a Redis that fails and answers in turn allows no process more than the rate.

    Args:
        rule: the limit.
        client: the app's Redis.
        scope: the consumer's scope in the ledger.
        clock: the source of time.
        warned: called with a text when Redis begins to fail.
    """

    def __init__(
        self, rule: RateRule, client: RedisClient, scope: str, clock: Clock, warned: Callable[[str], object]
    ) -> None:
        self._rule = rule
        self._client = client
        self._scope = scope
        self._clock = clock
        self._warned = warned
        self._burst = math.floor(burst_of(rule.limit, rule.burst))
        self._wanted = max(1, min(self._burst, math.ceil(rule.limit * _AT_ONCE)))
        self._keeps = max(_KEPT, self._wanted / rule.limit)
        self._key = f"oncemq:rate:{scope}"
        self._asking = threading.Lock()
        self._mutex = threading.Lock()
        self._left = 0
        self._keep_until = self._ask_at = self._asked_at = clock.monotonic()
        self._here = RateLimit(rule.limit, clock, rule.burst)
        self._alone = False
        self._said_at = -math.inf

    def prepare(self) -> None:
        """Take messages from the bucket, if there are none left here; one thread asks, others do not wait for it."""
        if not self._needs_some() or not self._asking.acquire(blocking=False):
            return
        try:
            # Another thread may have asked since: two answers would be more than a burst.
            if self._needs_some():
                self._ask()
        finally:
            self._asking.release()

    def _needs_some(self) -> bool:
        now = self._clock.monotonic()
        return now >= self._ask_at and self._left_at(now) <= 0

    def _left_at(self, now: float) -> int:
        """Return what is left here; the bucket has renewed what was kept for too long, which would be a burst more."""
        return self._left if now <= self._keep_until else 0

    def _ask(self) -> None:
        self._asked_at = self._clock.monotonic()
        call = Call.of(TAKE, [self._key], [repr(self._rule.limit / 1000), self._burst, self._wanted])
        try:
            granted, milliseconds = self._client.call(call)
        except (RedisUnavailable, RedisRefused) as error:
            self._failed(error)
            return
        with self._mutex:
            now = self._clock.monotonic()
            self._alone = False
            self._left = self._left_at(now) + int(granted)
            self._keep_until = now + self._keeps
            self._ask_at = now + int(milliseconds) / 1000

    def _failed(self, error: Exception) -> None:
        with self._mutex:
            now = self._clock.monotonic()
            self._ask_at = now + max(_AGAIN, (now - self._asked_at) * _PAUSES)
            says = not self._alone and now >= self._said_at + _SAID_FOR
            self._alone = True
            if says:
                self._said_at = now
        warned = self._warned
        if says:
            warned(
                f"the rate of {self._scope}, {self._rule.text}, is not shared while Redis is away: each process keeps "
                f"to it by itself: {error}"
            )

    @property
    def most(self) -> int:
        """One: its part of the rate depends on the other processes."""
        return 1

    def allowance(self) -> int:
        """Return how many messages may be taken now."""
        with self._mutex:
            left = self._left_at(self._clock.monotonic())
            return max(left, self._here.allowance()) if self._alone else left

    def spend(self, messages: int) -> None:
        """Count messages that were taken."""
        with self._mutex:
            self._left = max(0, self._left - messages)
            self._here.allowance()
            self._here.spend(messages)

    def wait(self, messages: int = 1) -> float:
        """Return the seconds until there may be some, however many are asked for; longer and longer, while another thread waits for an answer."""
        with self._mutex:
            if self._alone:
                return self._here.wait(messages)
            now = self._clock.monotonic()
            under_way = now - self._asked_at if self._asking.locked() else 0.0
            return max(0.001, under_way, self._ask_at - now)


def limit_of(
    rule: RateRule | None,
    redis: RedisClient | None,
    scope: str,
    clock: Clock,
    warned: Callable[[str], None],
) -> Limit | None:
    """Return the limit that a consumer declares; None without one. See `SharedRate` for the arguments."""
    if rule is None:
        return None
    if not rule.shared or redis is None:
        return RateLimit(rule.limit, clock, rule.burst)
    return SharedRate(rule, redis, scope, clock, warned)
