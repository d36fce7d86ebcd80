"""Takes and delivers ready messages in a thread; woken in the process, polling the file in between."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from threading import Event, Thread

from oncemq.common.clock import Clock
from oncemq.contracts.adapter import Sink, Subscription
from oncemq.errors import BrokerError, BrokerRefused
from oncemq.message.envelope import Delivery
from oncemq_adapters.embedded import leases as takes
from oncemq_adapters.embedded.errors import StoreGone
from oncemq_adapters.embedded.held_deliveries import Custody, Token
from oncemq_adapters.embedded.session import Link, Session
from oncemq_adapters.embedded.settlement import Hold
from oncemq_adapters.embedded.stored_messages import microseconds, unpack

_GLANCE = 0.01
"""Seconds between two looks at whether another process has written."""
_ROUNDS = 0.5
"""Seconds between two looks at dead members and expired leases."""
_MOST = 500
"""Deliveries taken in one transaction."""
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
_ENDS_SESSION = (StoreGone, BrokerRefused)


class Receiver:
    """Receives for all subscriptions of one adapter, in one thread."""

    def __init__(
        self,
        link: Link,
        custody: Custody,
        subscriptions: Sequence[Subscription],
        sink: Sink,
        *,
        clock: Clock,
        lease: timedelta,
        name: str,
    ) -> None:
        self._failure: BrokerError | None = None
        self._link = link
        self._custody = custody
        self._subscriptions = subscriptions
        self._sink = sink
        self._clock = clock
        self._lease = lease
        self._wake = Event()
        self._stopping = Event()
        self._next_round = 0.0
        self._due: int | None = None
        self._thread = Thread(target=self._run, name=f"oncemq-embedded-{name}", daemon=True)

    def start(self) -> None:
        """Start receiving."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once: there is something new, or room for it."""
        self._wake.set()

    def stop(self) -> None:
        """Receive no more; returns when the last delivery has been handed over."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    @property
    def problem(self) -> str:
        """Why nothing is received now; empty while all is well."""
        if self._stopping.is_set() or not self._thread.is_alive():
            return "not open"
        return str(self._failure or "")

    def _run(self) -> None:
        session = self._link.current()
        tries = 0
        while not self._stopping.is_set():
            try:
                if isinstance(self._failure, _ENDS_SESSION):
                    session = self._link.renew(session)
                self._receive(session)
            except BrokerError as error:
                tries = tries + 1 if self._failure else 0
                self._fail(error, session)
                self._stopping.wait(_PAUSES[min(tries, len(_PAUSES) - 1)])

    def _fail(self, error: BrokerError, session: Session) -> None:
        # A busy or full file leaves our leases alone; one that is gone or replaced knows nothing of them.
        if isinstance(error, _ENDS_SESSION) and not isinstance(self._failure, _ENDS_SESSION):
            self._custody.drop_all()
            for subscription in self._subscriptions:
                self._sink.lost(subscription.consumer, session.generation)
        self._failure = error

    def _receive(self, session: Session) -> None:
        while not self._stopping.is_set():
            self._make_rounds(session)
            taken = self._take(session)
            self._failure = None
            if not taken:
                self._idle(session)

    def _make_rounds(self, session: Session) -> None:
        now = self._clock.monotonic()
        if now >= self._next_round:
            self._next_round = now + _ROUNDS
            self._custody.drop_expired(now)
            session.bury_the_dead()

    def _take(self, session: Session) -> bool:
        wanted = self._wanted(session)
        if not wanted:
            return False
        now = microseconds(self._clock.now())
        until = now + microseconds_of(self._lease)
        expires_at = self._clock.monotonic() + self._lease.total_seconds()

        def take_all(connection: sqlite3.Connection) -> list[list[takes.Taken]]:
            takes.make_due_ready(connection, now)
            return [
                takes.take(connection, session.groups[entry.consumer], session.member, room, until)
                for entry, room in wanted
            ]

        found = session.database.write(take_all)
        for (subscription, _), rows in zip(wanted, found, strict=True):
            self._hand_over(subscription, rows, session, expires_at)
        return any(found)

    def _wanted(self, session: Session) -> list[tuple[Subscription, int]]:
        """Return who has room, if there is anything to take at all; only reads."""
        rooms = [
            (subscription, min(self._custody.room(subscription.consumer), _MOST))
            for subscription in self._subscriptions
        ]
        hungry = [(subscription, room) for subscription, room in rooms if room]
        due, ready = session.database.read(
            lambda connection: (
                takes.next_due(connection),
                [pair for pair in hungry if takes.is_ready(connection, session.groups[pair[0].consumer])],
            )
        )
        if due is not None and due <= microseconds(self._clock.now()):
            return hungry
        self._due = due
        return ready

    def _hand_over(
        self, subscription: Subscription, rows: list[takes.Taken], session: Session, expires_at: float
    ) -> None:
        group = session.groups[subscription.consumer]
        deliveries = []
        for row in rows:
            message = unpack(
                subscription.topic, row.properties, row.body, row.published_at, redelivered=row.redelivered
            )
            token = Token(Hold(row.message_id, group, row.lease), subscription.consumer, expires_at)
            self._custody.add(token)
            deliveries.append(Delivery(message, token, session.generation, expires_at))
        self._sink.deliver(deliveries, subscription.consumer)

    def _idle(self, session: Session) -> None:
        while not self._wake.wait(_GLANCE):
            if session.database.changed() or self._clock.monotonic() >= self._next_round:
                return
            if self._due is not None and self._due <= microseconds(self._clock.now()):
                return
        self._wake.clear()


def microseconds_of(duration: timedelta) -> int:
    """Return a duration as it is stored."""
    return duration // timedelta(microseconds=1)
