"""`FencedLock`: Redisson's RFencedLock – every acquisition has a higher number, for comparison by the guarded data."""

from typing import Any

from oncemq.redis.call import Call
from oncemq_strategies.redisson.lock import Lock, NotHeld
from oncemq_strategies.redisson.lock_scripts import ACQUIRE_FENCED
from oncemq_strategies.redisson.names import token_of


class FencedLock(Lock):
    """A `Lock` with a token; the same lock as Redisson's `getFencedLock(name)`.

    A holder that was paused for longer than its lease does not know that it lost the lock. A store that keeps the token
    beside the data and refuses writes with a lower one is safe from it.
    """

    @property
    def token(self) -> int:
        """The token of the last acquisition.

        Raises:
            NotHeld: the lock is not, or no longer, ours.
        """
        holding = self._holding()
        if holding is None or not holding.valid:
            raise NotHeld(f"lock {self.name!r} is not held by {self.owner}")
        return holding.token

    def _acquire_call(self, holds: int) -> Call:
        return Call.of(ACQUIRE_FENCED, [self.name, token_of(self.name)], [self._lease, self.owner, holds])

    def _understood(self, answer: Any) -> tuple[int | None, int]:
        ours, value = answer
        return (None, int(value)) if ours == 1 else (int(value), 0)
