"""The adapter of `embedded://`: a durable broker in one SQLite file, shared by the processes of one machine."""

import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

from oncemq.adapter import (
    CONFIRMED,
    AdapterScope,
    Capabilities,
    Confirmed,
    ConsumerHealth,
    Dead,
    DeadLetter,
    Later,
    Order,
    Refused,
    SettleFailed,
    Sink,
    Subscription,
)
from oncemq.errors import BrokerError, BrokerRefused
from oncemq.facts import ConsumerFacts, Problem
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.embedded import advice, graves, settlements, takes, topics
from oncemq_adapters.embedded.custody import Custody
from oncemq_adapters.embedded.database import Work
from oncemq_adapters.embedded.faults import StoreGone
from oncemq_adapters.embedded.properties import microseconds, moment, pack, unpack
from oncemq_adapters.embedded.receiver import Receiver, microseconds_of
from oncemq_adapters.embedded.session import Link
from oncemq_adapters.embedded.settings import Settings, read_settings
from oncemq_adapters.embedded.settlements import Hold
from oncemq_adapters.embedded.topics import Stored

T = TypeVar("T")
_Settling = Callable[[sqlite3.Connection, Sequence[Delivery]], Collection[Hold]]
_PAGE = 100


class EmbeddedAdapter:
    """A broker in a SQLite file: durable, ordered, with leases, delays and dead letters; no server needed."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=True,
        redelivered_flag=True,
        order=Order.TOPIC,
        competing=True,
        lease=True,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=True,
    )

    def __init__(self, settings: Settings, scope: AdapterScope) -> None:
        self._settings = settings
        self._scope = scope
        self._link = Link(settings)
        self._custody = Custody(())
        self._receiver: Receiver | None = None
        self._life = Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.place}>"

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        return cls(read_settings(url, options, scope.broker), scope)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what cannot be safe or cannot work about this consumer on this broker."""
        return advice.problems(self._settings, facts)

    # Life

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Open the file and register the groups; consume nothing."""
        self._link.connect(subscriptions)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Open the file, register the groups and start receiving."""
        with self._life:
            if self._receiver is not None:
                raise BrokerRefused(f"embedded broker {self._settings.place}: this adapter is open already")
            self._link.connect(subscriptions).bury_the_dead()
            self._custody = Custody(subscriptions)
            self._receiver = Receiver(
                self._link,
                self._custody,
                sink,
                clock=self._scope.clock,
                lease=self._settings.lease,
                name=self._scope.broker,
            )
            self._receiver.start()

    def close(self, *, grace: timedelta) -> None:
        """Stop receiving, give back what is unsettled, close the file; settlements are never outstanding."""
        del grace
        with self._life:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.stop()
            self._custody.drop_all()
            try:
                self._link.disconnect()
            except BrokerError:
                # Nothing can be given back into a file that is away; the leases come back by themselves.
                return

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer until `resume`; what was received stays ours."""
        self._custody.pause(consumer)

    def resume(self, consumer: str) -> None:
        """Receive again."""
        self._custody.resume(consumer)
        self._wake()

    def health(self) -> Sequence[ConsumerHealth]:
        """Return one row for each expected consumer."""
        receiver = self._receiver
        problem = "not open" if receiver is None or not receiver.alive else receiver.problem
        return [
            ConsumerHealth(one.consumer, subscribed=not problem, detail=problem)
            for one in self._link.subscriptions
        ]

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Remove these deliveries; a message goes when its last group is done with it."""
        return self._settle(
            deliveries,
            lambda connection, mine: settlements.acknowledge(connection, [one.token.hold for one in mine]),
        )

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries, so that any member may have them at once."""
        failed = self._settle(
            deliveries,
            lambda connection, mine: settlements.give_back(connection, [one.token.hold for one in mine]),
        )
        self._wake()
        return failed

    def retry(self, later: Sequence[Later]) -> Sequence[SettleFailed]:
        """Let these come again to this group alone; putting back and settling is one transaction."""
        wanted = {id(one.delivery): one for one in later}
        now = self._scope.clock.now()

        def put_back(connection: sqlite3.Connection, mine: Sequence[Delivery]) -> Collection[Hold]:
            return {
                delivery.token.hold
                for delivery in mine
                if settlements.retry(
                    connection,
                    delivery.token.hold,
                    _with(delivery, wanted[id(delivery)].headers),
                    microseconds(now + wanted[id(delivery)].delay),
                )
            }

        failed = self._settle([one.delivery for one in later], put_back)
        self._wake()
        return failed

    def dead_letter(self, dead: Sequence[Dead]) -> Sequence[SettleFailed]:
        """Put these into the group's dead letters; burying and settling is one transaction."""
        headers = {id(one.delivery): one.headers for one in dead}
        now = microseconds(self._scope.clock.now())
        return self._settle(
            [one.delivery for one in dead],
            lambda connection, mine: settlements.bury(
                connection, {one.token.hold: _with(one, headers[id(one)]) for one in mine}, now
            ),
        )

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Keep deliveries for at least `by` from now."""
        until = microseconds(self._scope.clock.now()) + microseconds_of(by)
        expires_at = self._scope.clock.monotonic() + by.total_seconds()
        session = self._link.session
        mine, failed = self._custody.claim(deliveries, session.generation if session else 0)
        if not mine or session is None:
            return failed
        holds = [one.token.hold for one in mine]
        try:
            done = session.database.write(lambda connection: settlements.extend(connection, holds, until))
        except BrokerError as error:
            self._custody.unclaim(mine)
            return [*failed, *(SettleFailed(one, error) for one in mine)]
        return [*failed, *self._custody.prolong(mine, dict.fromkeys(done, expires_at))]

    def _settle(self, deliveries: Sequence[Delivery], work: _Settling) -> Sequence[SettleFailed]:
        # The session is fixed before the claim: a session that ends in between fails, and never settles
        # something in the file of its successor.
        session = self._link.session
        mine, failed = self._custody.claim(deliveries, session.generation if session else 0)
        if not mine or session is None:
            return failed
        try:
            done = session.database.write(lambda connection: work(connection, mine))
        except BrokerError as error:
            self._custody.unclaim(mine)
            return [*failed, *(SettleFailed(one, error) for one in mine)]
        void, has_room = self._custody.finish(mine, done)
        if has_room:
            self._wake()
        return [*failed, *void]

    # Publishing and administration

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to every group of the topic; kept for the first group while there is none."""
        del options
        refusals = [self._refusal(topic, message) for message in messages]
        stored = [self._stored(one) for one, no in zip(messages, refusals, strict=True) if no is None]
        try:
            if stored:
                self._write(lambda connection: topics.publish(connection, topic, stored), durable=True)
        except BrokerError as error:
            return [Refused(no or error) for no in refusals]
        self._wake()
        return [CONFIRMED if no is None else Refused(no) for no in refusals]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first, without consuming them."""
        group, after = self._group(subscription), 0
        while limit > 0 and (found := self._page(group, after, min(limit, _PAGE))):
            for grave in found:
                message = unpack(subscription.topic, grave.properties, grave.body, grave.published_at)
                yield DeadLetter(str(grave.id), message, moment(grave.dead_at))
            limit, after = limit - len(found), found[-1].id

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again, with fresh attempts; one transaction with their removal."""
        group = self._group(subscription)
        count = self._write(
            lambda connection: graves.replay(connection, subscription.topic, group, ids), durable=True
        )
        self._wake()
        return count

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        group = self._group(subscription)
        return self._write(lambda connection: graves.purge(connection, group, ids))

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group, delayed ones included, those in hands not."""
        group = self._group(subscription)
        return self._link.current().database.read(lambda connection: takes.depth(connection, group))

    def _write(self, work: Work[T], *, durable: bool = False) -> T:
        session = self._link.current()
        try:
            return session.database.write(work, durable=durable)
        except StoreGone:
            if self._receiver is not None:  # it makes the new session, and tells the sink of the loss
                raise
            return self._link.renew(session).database.write(work, durable=durable)

    def _page(self, group: int, after: int, size: int) -> list[graves.Grave]:
        database = self._link.current().database
        return database.read(lambda connection: graves.page(connection, group, after, size))

    def _group(self, subscription: Subscription) -> int:
        found = self._link.current().database.read(
            lambda connection: topics.find(connection, subscription.topic, subscription.group)
        )
        if found is None:
            raise BrokerRefused(
                f"embedded broker {self._settings.place}: no group {subscription.group!r} of topic "
                f"{subscription.topic!r}; it is registered when its consumer starts"
            )
        return found

    def _refusal(self, topic: str, message: OutgoingMessage) -> BrokerRefused | None:
        if not topic.strip() or not topic.isprintable():
            return BrokerRefused(f"embedded broker: {topic!r} cannot be a topic's name")
        if len(message.body) > self._settings.max_body:
            return BrokerRefused(
                f"embedded broker: a body of {len(message.body)} bytes is over max_body ({self._settings.max_body})"
            )
        return None

    def _stored(self, message: OutgoingMessage) -> Stored:
        now = self._scope.clock.now()
        keys = () if message.key is None else (message.key,)
        properties = pack(message.headers, keys, message.message_id or uuid.uuid4().hex)
        due_at = microseconds(now + message.delay) if message.delay else 0
        return Stored(properties, message.body, microseconds(now), due_at)

    def _wake(self) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.wake()


def _with(delivery: Delivery, added: Mapping[str, str]) -> str:
    message = delivery.message
    return pack({**message.headers, **added}, message.keys, message.message_id)
