"""`MultiLock`: several locks acquired together – all or none, never waiting for one while holding another."""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from oncemq.errors import OnceMQError
from oncemq_strategies.redisson.lock import NO_TIME, Block, Lock


class MultiLock(Block):
    """Plain locks taken together; excludes Redisson's `getMultiLock(…)` of the same locks.

    They are tried in the order of their names. When one is taken, those before it are released, and that one is
    waited for first: so two owners never wait for each other.

    Args:
        locks: at least one, with distinct names.
    """

    def __init__(self, *locks: Lock) -> None:
        names = [lock.name for lock in locks]
        if not locks or len(set(names)) < len(names):
            raise ValueError("a MultiLock is made of at least one lock, each with a name of its own")
        self._locks = sorted(locks, key=lambda lock: lock.name)

    def __repr__(self) -> str:
        return f"<MultiLock {', '.join(repr(lock.name) for lock in self._locks)}>"

    def acquire(self, wait: timedelta | None = None) -> bool:
        """Return whether all locks are ours; raises as `Lock.acquire`, and then none is.

        Args:
            wait: how long to wait; None = until all are ours, zero = not at all.
        """
        until = None if wait is None else time.monotonic() + wait.total_seconds()
        taken = self._try(self._locks)
        while taken is not None:
            left = None if until is None else timedelta(seconds=max(0.0, until - time.monotonic()))
            if left is not None and left <= NO_TIME:
                return False
            if not taken.acquire(left):
                return False
            taken = self._try([lock for lock in self._locks if lock is not taken], held=taken)
        return True

    def release(self) -> None:
        """Release all locks, also when one of them is lost; the first error is raised afterwards."""
        failure: OnceMQError | None = None
        for lock in reversed(self._locks):
            try:
                lock.release()
            except OnceMQError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def extend(self, by: timedelta) -> None:
        """Extend all leases to at least `by` from now; raises as `Lock.extend`."""
        for lock in self._locks:
            lock.extend(by)

    def locked(self) -> bool:
        """Return whether any of them is held by any owner."""
        return any(lock.locked() for lock in self._locks)

    def owned(self) -> bool:
        """Return whether all are still ours."""
        return all(lock.owned() for lock in self._locks)

    def _try(self, locks: Sequence[Lock], held: Lock | None = None) -> Lock | None:
        """Take all `locks` without waiting; otherwise release everything, `held` too, and return the taken one."""
        mine = [] if held is None else [held]
        missing: Lock | None = None
        try:
            for lock in locks:
                if not lock.acquire(NO_TIME):
                    missing = lock
                    break
                mine.append(lock)
        except BaseException:
            _give_back(mine)
            raise
        if missing is not None:
            _give_back(mine)
        return missing


def _give_back(locks: Sequence[Lock]) -> None:
    for lock in reversed(locks):
        with suppress(OnceMQError):
            lock.release()
