"""Limits how many messages a second all processes of a consumer take together, by a bucket in Redis."""

import math
import threading
from collections.abc import Callable
from typing import Final

from oncemq.common.clock import Clock
from oncemq.engine.rates.rate_limit import RateLimit, burst_of
from oncemq.engine.rates.rule import RateRule
from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.call import Call, Script
from oncemq.redis.client import RedisClient

_AT_ONCE: Final = 0.1
"""Seconds whose messages a process takes from the bucket together: a question costs a round trip."""
_AGAIN: Final = 1.0
"""Seconds until a Redis that failed is asked again."""

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

    While Redis is away each process keeps to the whole rate by itself.

    Args:
        rule: the limit.
        client: the app's Redis.
        scope: the consumer's scope in the ledger.
        clock: the source of time.
        warn: called with a text when Redis begins to fail.
    """

    def __init__(
        self, rule: RateRule, client: RedisClient, scope: str, clock: Clock, warn: Callable[[str], object]
    ) -> None:
        self._rule = rule
        self._client = client
        self._scope = scope
        self._clock = clock
        self._warn = warn
        self._burst = math.floor(burst_of(rule.limit, rule.burst))
        self._key = f"oncemq:rate:{scope}"
        self._asking = threading.Lock()
        self._mutex = threading.Lock()
        self._left = 0
        self._ask_at = clock.monotonic()
        self._alone: RateLimit | None = None

    def prepare(self) -> None:
        """Take messages from the bucket, if there are none left here; one thread asks, others do not wait for it."""
        if (
            self._left > 0
            or self._clock.monotonic() < self._ask_at
            or not self._asking.acquire(blocking=False)
        ):
            return
        try:
            self._ask()
        finally:
            self._asking.release()

    def _ask(self) -> None:
        wanted = max(1, min(self._burst, math.ceil(self._rule.limit * _AT_ONCE)))
        call = Call.of(TAKE, [self._key], [repr(self._rule.limit / 1000), self._burst, wanted])
        try:
            granted, milliseconds = self._client.call(call)
        except (RedisUnavailable, RedisRefused) as error:
            self._failed(error)
            return
        with self._mutex:
            self._alone = None
            self._left += int(granted)
            self._ask_at = self._clock.monotonic() + int(milliseconds) / 1000

    def _failed(self, error: Exception) -> None:
        with self._mutex:
            self._ask_at = self._clock.monotonic() + _AGAIN
            first = self._alone is None
            if first:
                self._alone = RateLimit(self._rule.limit, self._clock, self._rule.burst)
        if first:
            self._warn(
                f"the rate of {self._scope}, {self._rule.text}, is not shared while Redis is away: each process keeps "
                f"to it by itself: {error}"
            )

    def allowance(self) -> int:
        """Return how many messages may be taken now."""
        with self._mutex:
            return self._left if self._alone is None else max(self._left, self._alone.allowance())

    def spend(self, messages: int) -> None:
        """Count messages that were taken."""
        with self._mutex:
            if self._alone is None:
                self._left -= messages
            else:
                self._left = max(0, self._left - messages)
                self._alone.spend(messages)

    def wait(self) -> float:
        """Return the seconds until the bucket may be asked again."""
        with self._mutex:
            if self._alone is not None:
                return self._alone.wait()
            return max(0.001, self._ask_at - self._clock.monotonic())
