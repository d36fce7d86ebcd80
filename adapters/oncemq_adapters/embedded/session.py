"""One connection's life: a member with a generation; a lost connection is followed by a new session."""

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import TypeVar

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerUnavailable
from oncemq_adapters.embedded import members, schema, topics
from oncemq_adapters.embedded.database import Database, Work
from oncemq_adapters.embedded.errors import StoreGone
from oncemq_adapters.embedded.settings import Settings

T = TypeVar("T")


class Session:
    """A connection, the member that speaks through it, and the groups it serves.

    Attributes:
        database: the connection.
        generation: goes with every delivery; those of another session are void.
        member: owns the leases.
        groups: group number by consumer.
    """

    def __init__(
        self,
        settings: Settings,
        subscriptions: Sequence[Subscription],
        generation: int,
        *,
        create: bool = True,
        former: int | None = None,
    ) -> None:
        self.generation = generation
        self.database = Database(settings, create=create)
        try:
            self.member, self.groups = self.database.write(
                lambda connection: _begin(connection, settings, subscriptions, former)
            )
        except BaseException:
            self.database.close()
            raise

    def register(self, subscriptions: Sequence[Subscription]) -> None:
        """Make sure that these groups exist."""
        self.groups |= self.database.write(lambda connection: _register(connection, subscriptions))

    def works(self) -> bool:
        """Return whether the file is still the one that was opened; a session on another one is closed."""
        try:
            self.database.changed()
        except StoreGone:
            self.database.close()
            return False
        return True

    def bury_the_dead(self) -> int:
        """Let the deliveries of dead members be taken again; returns how many there were."""
        dead = self.database.read(lambda connection: members.dead_ones(connection, but=self.member))
        if not dead:
            return 0
        return self.database.write(
            lambda connection: sum(members.leave(connection, member) for member in dead)
        )

    def end(self) -> None:
        """Give everything back and disconnect."""
        try:
            self.database.write(lambda connection: members.leave(connection, self.member))
        finally:
            self.database.close()


class Link:
    """The current session, or the reason why there is none.

    Attributes:
        heals: a broken session is renewed by the thread that finds it; not while a receiver renews and reports it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._session: Session | None = None
        self._subscriptions: tuple[Subscription, ...] = ()
        self._generation = 0
        self.heals = True

    @property
    def session(self) -> Session | None:
        """The session, if there is one."""
        return self._session

    def connect(self, subscriptions: Sequence[Subscription]) -> Session:
        """Return a session that knows these subscriptions; the first one makes the file."""
        with self._lock:
            self._subscriptions = tuple(subscriptions)
            if self._session is None or not self._session.works():
                self._generation += 1
                self._session = Session(self._settings, subscriptions, self._generation)
            else:
                self._session.register(subscriptions)
            return self._session

    def current(self) -> Session:
        """Return the session.

        Raises:
            BrokerUnavailable: there is none.
        """
        session = self._session
        if session is None:
            raise BrokerUnavailable(
                f"embedded broker {self._settings.place}: not open (before prepare() or after close())"
            )
        return session

    def renew(self, broken: Session) -> Session:
        """Return a new session in place of a broken one; never makes a file that has gone."""
        with self._lock:
            if self._session is not broken:
                return self.current()
            broken.database.close()
            self._session = Session(
                self._settings,
                self._subscriptions,
                broken.generation + 1,
                create=False,
                former=broken.member,
            )
            self._generation = self._session.generation
            return self._session

    def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run `work` in a write transaction of the current session."""
        session = self.current()
        try:
            return session.database.write(work, durable=durable)
        except StoreGone:
            if not self.heals:
                raise
            return self.renew(session).database.write(work, durable=durable)

    def read(self, work: Work[T]) -> T:
        """Run `work`, which only reads, in the current session."""
        session = self.current()
        try:
            return session.database.read(work)
        except StoreGone:
            if not self.heals:
                raise
            return self.renew(session).database.read(work)

    def disconnect(self) -> None:
        """End the session, if there is one."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.end()


def _begin(
    connection: sqlite3.Connection,
    settings: Settings,
    subscriptions: Sequence[Subscription],
    former: int | None,
) -> tuple[int, dict[str, int]]:
    schema.ensure(connection, settings.place)
    if former is not None:
        members.leave(connection, former)
    return members.join(connection), _register(connection, subscriptions)


def _register(connection: sqlite3.Connection, subscriptions: Sequence[Subscription]) -> dict[str, int]:
    return {
        subscription.consumer: topics.register(connection, subscription.topic, subscription.group)
        for subscription in subscriptions
    }
