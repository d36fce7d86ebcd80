"""Renews the leases of this process's locks in one thread, and reports lost locks."""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redisson.lock_scripts import EXTEND
from oncemq_strategies.redisson.pending_releases import Release, Unheard

_log = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""Redisson's own: how long a lock outlives its holder's process."""
_RENEWALS = 3
_AGAIN = 1.0
_LINGERS = 5.0
"""Seconds; as long as a lock was held recently, acquiring the next one need not wake the thread."""


class Holding:
    """A lock held in this process.

    Attributes:
        name: the lock's.
        owner: the field of the lock's hash.
        holds: number of its owner's acquisitions not yet released.
        lease: milliseconds that the lock outlives this process.
        watched: the lease is renewed as long as this process lives.
        valid_until: monotonic seconds; until then it is certainly ours, unless `lost`.
        lost: the lock expired or was taken away.
        token: the fencing token; 0 without one.
        on_loss: called once, from the keeper's thread.
    """

    __slots__ = (
        "holds",
        "lease",
        "lost",
        "name",
        "on_loss",
        "owner",
        "renew_at",
        "token",
        "valid_until",
        "watched",
    )

    def __init__(
        self, name: str, owner: str, lease: int, sent: float, *, watched: bool, token: int = 0
    ) -> None:
        self.name = name
        self.owner = owner
        self.holds = 1
        self.lease = lease
        self.watched = watched
        self.lost = False
        self.token = token
        self.on_loss: list[Callable[[], None]] = []
        self.confirm(sent)

    @property
    def valid(self) -> bool:
        """Whether the lock is still ours, as far as known without asking Redis."""
        return not self.lost and time.monotonic() < self.valid_until

    def confirm(self, sent: float) -> None:
        """Note that Redis renewed the whole lease by a command sent at the monotonic second `sent`."""
        self.valid_until = sent + self.lease / 1000
        self.renew_at = sent + self.lease / 1000 / _RENEWALS

    def renewal(self, lease: int) -> Call:
        """Return the call that extends the lease to at least so many milliseconds from now; it answers 1, or 0 after a loss."""
        return Call.of(EXTEND, [self.name], [lease, self.owner])


class Keeper:
    """Keeps all holdings of one client.

    Args:
        client: the client that acquired them.

    Attributes:
        id: distinguishes this client's owners from all others.
    """

    def __init__(self, client: RedisClient) -> None:
        self.id = str(uuid4())
        self._client = client
        self._holdings: dict[tuple[str, str], Holding] = {}
        self._changed = threading.Condition()
        self._unheard = Unheard(client)
        self._thread: threading.Thread | None = None
        self._threads = itertools.count(1)
        self._local = threading.local()
        self._closed = False
        self._looks_at = math.inf
        self._used = False
        self._warned = False
        client.before_closing(self.close)

    def owner(self) -> str:
        """Return the owner that represents this thread, in Redisson's format."""
        # Not the system's thread number: it is reused after a thread has ended.
        owner: str | None = getattr(self._local, "owner", None)
        if owner is None:
            owner = self._local.owner = f"{self.id}:{next(self._threads)}"
        return owner

    def find(self, name: str, owner: str) -> Holding | None:
        """Return the holding of this owner, if any."""
        return self._holdings.get((name, owner))

    def add(self, holding: Holding) -> None:
        """Renew a lock that was just acquired."""
        self.add_all([holding])

    def add_all(self, holdings: Iterable[Holding]) -> None:
        """Renew locks that were just acquired."""
        with self._changed:
            soonest, self._used = math.inf, True
            for holding in holdings:
                self._holdings[holding.name, holding.owner] = holding
                soonest = min(soonest, _due_at(holding))
            self._look_at(soonest)

    def drop(self, holding: Holding) -> None:
        """Stop renewing it: it is released, or about to be."""
        with self._changed:
            if self._holdings.get((holding.name, holding.owner)) is holding:
                del self._holdings[holding.name, holding.owner]

    def insist(self, releases: Iterable[Release]) -> None:
        """Repeat releases that did not reach Redis."""
        with self._changed:
            self._unheard.add(releases)
            self._look_at(self._unheard.due_at)

    def lose(self, holding: Holding) -> None:
        """Notify the holder that the lock is lost."""
        with self._changed:
            if holding.lost:
                return
            holding.lost = True
            self.drop(holding)
        for tell in holding.on_loss:
            with suppress(Exception):
                tell()

    def untold(self, name: str, channel: str) -> None:
        """Log once that releases wake no waiters: this user may not publish in the locks' channels."""
        if not self._warned:
            self._warned = True
            prefix = channel.split(":", 1)[0]
            _log.warning(
                "lock %r was released without a message: this Redis user may not publish in %s, so clients that wait "
                "for its locks poll; grant it with ACL SETUSER <user> &%s:* +publish +spublish",
                name,
                channel,
                prefix,
            )

    def close(self) -> None:
        """Stop all renewals; held locks expire."""
        with self._changed:
            self._closed = True
            self._holdings.clear()
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _look_at(self, soonest: float) -> None:
        """Have the thread wake at the monotonic second `soonest`; called with `_changed` held."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._watch, name="oncemq-lock-watchdog", daemon=True)
            self._thread.start()
        # Waking the thread for every lock would cost more than the lock.
        if soonest < self._looks_at:
            self._changed.notify()

    def _watch(self) -> None:
        while not self._closed:
            with self._changed:
                pause = self._pause()
                if pause is None:
                    # The next lock starts another thread; so a client that is no longer used keeps none.
                    self._thread, self._looks_at = None, math.inf
                    return
                if pause > 0:
                    self._looks_at = time.monotonic() + pause
                    self._changed.wait(pause)
                    continue
                due, releases = self._due(), self._unheard.take(time.monotonic())
            self._renew(due)
            if releases:
                self.insist(self._unheard.say(releases))

    def _pause(self) -> float | None:
        """Return the seconds until something is or might be due; None when nothing is held, now or recently."""
        soonest = min(map(_due_at, self._holdings.values()), default=math.inf)
        if (soonest := min(soonest, self._unheard.due_at)) < math.inf:
            return soonest - time.monotonic()
        lately, self._used = self._used, False
        return _LINGERS if lately else None

    def _due(self) -> list[Holding]:
        now = time.monotonic()
        return [holding for holding in self._holdings.values() if _due_at(holding) <= now]

    def _renew(self, due: Sequence[Holding]) -> None:
        sent = time.monotonic()
        expired = [holding for holding in due if holding.valid_until <= sent]
        for holding in expired:
            self.lose(holding)
        alive = [holding for holding in due if holding.watched and not holding.lost]
        if not alive:
            return
        calls = [lock.renewal(lock.lease) for lock in alive]
        for holding, answer in zip(alive, self._client.together(calls), strict=True):
            if isinstance(answer, Failure):
                holding.renew_at = time.monotonic() + min(_AGAIN, holding.lease / 1000 / (2 * _RENEWALS))
            elif answer == 1:
                holding.confirm(sent)
            elif self.find(holding.name, holding.owner) is holding:
                self.lose(holding)


def _due_at(holding: Holding) -> float:
    return min(holding.renew_at, holding.valid_until) if holding.watched else holding.valid_until


def milliseconds(duration: timedelta) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(duration.total_seconds() * 1000))
