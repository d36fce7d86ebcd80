"""The adapter of `embedded://`: a durable broker in one SQLite file, shared by the processes of one machine."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Self, cast

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import (
    CONFIRMED,
    AdapterScope,
    Confirmed,
    ConsumerHealth,
    DeadLetter,
    DeadLetterRequest,
    ParkedDeadLetter,
    Refused,
    RetryRequest,
    SettleFailed,
    Sink,
    Subscription,
)
from oncemq.contracts.broker_queries import Backlog, PrivateNames, group_on_topic, split_group_on_topic
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import BrokerError, BrokerRefused
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.embedded import settings as advice
from oncemq_adapters.embedded import settlement as settlements
from oncemq_adapters.embedded import topics
from oncemq_adapters.embedded.administration import Administration
from oncemq_adapters.embedded.held_deliveries import Custody
from oncemq_adapters.embedded.receiver import Receiver, microseconds_of
from oncemq_adapters.embedded.session import Link
from oncemq_adapters.embedded.settings import Settings, read_settings
from oncemq_adapters.embedded.settlement import Hold
from oncemq_adapters.embedded.stored_messages import microseconds, pack, refusal, stored

_Settling = Callable[[sqlite3.Connection, Sequence[Delivery]], Collection[Hold]]


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
        self._expected: tuple[Subscription, ...] = ()
        self._life = Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.place}>"

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        settings = read_settings(url, options, scope.broker)
        if settings.path is None:
            return cast(Self, InMemoryAdapter(settings, scope))
        return cls(settings, scope)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer on this broker."""
        return advice.problems(self._settings, facts)

    def private_names(self, subscription: Subscription) -> PrivateNames | None:
        """Return the group on its topic, in this file; None in memory, which is not shared."""
        path = self._settings.path
        if path is None:
            return None
        name = group_on_topic(subscription.group, subscription.topic)
        return PrivateNames(str(path.resolve()), {name: "messages"})

    def remove_places(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Remove groups with their waiting messages and dead letters."""
        if self._settings.path is None or broker != str(self._settings.path.resolve()):
            return ()
        parts = {name: split_group_on_topic(name) for name in names}
        return [
            name
            for name, (group, topic) in parts.items()
            if self._link.write(partial(topics.remove, topic=topic, group=group), durable=True)
        ]

    # Life

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Open the file and register the groups; consume nothing."""
        self._link.connect(subscriptions)
        if self._receiver is None:
            self._expected = tuple(subscriptions)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Open the file, register the groups and start receiving."""
        with self._life:
            if self._receiver is not None:
                raise BrokerRefused(f"embedded broker {self._settings.place}: this adapter is open already")
            self._link.connect(subscriptions).bury_the_dead()
            self._expected, self._custody = tuple(subscriptions), Custody(subscriptions)
            self._link.heals = False
            self._receiver = Receiver(
                self._link,
                self._custody,
                self._expected,
                sink,
                clock=self._scope.clock,
                lease=self._settings.lease,
                name=self._scope.broker,
            )
            self._receiver.start()

    def close(self, *, grace: timedelta) -> None:
        """Stop receiving, return unsettled deliveries, close the file; settlements are never outstanding."""
        del grace
        with self._life:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.stop()
                self._link.heals = True
            self._custody.drop_all()
            try:
                self._link.disconnect()
            except BrokerError:
                # Nothing can be given back into a file that is away; the leases come back by themselves.
                return

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer until `resume`; received deliveries stay ours."""
        self._custody.pause(consumer)

    def resume(self, consumer: str) -> None:
        """Receive again."""
        self._custody.resume(consumer)
        self._wake()

    def health(self) -> Sequence[ConsumerHealth]:
        """Return one row for each expected consumer."""
        receiver = self._receiver
        problem = "not open" if receiver is None else receiver.problem
        return [
            ConsumerHealth(subscription.consumer, subscribed=not problem, detail=problem)
            for subscription in self._expected
        ]

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Remove these deliveries; a message goes when its last group is done with it."""
        return self._settle(
            deliveries,
            lambda connection, mine: settlements.acknowledge(
                connection, [delivery.token.hold for delivery in mine]
            ),
        )

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries, so that any member may have them at once."""
        failed = self._settle(
            deliveries,
            lambda connection, mine: settlements.give_back(
                connection, [delivery.token.hold for delivery in mine]
            ),
        )
        self._wake()
        return failed

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Let these come again to this group alone; putting back and settling is one transaction."""
        wanted = {id(request.delivery): request for request in later}
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

        failed = self._settle([request.delivery for request in later], put_back)
        self._wake()
        return failed

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Put these into the group's dead letters; burying and settling is one transaction."""
        headers = {id(item.delivery): item.headers for item in dead}
        now = microseconds(self._scope.clock.now())
        return self._settle(
            [item.delivery for item in dead],
            lambda connection, mine: settlements.publish_dead_letters(
                connection, {item.token.hold: _with(item, headers[id(item)]) for item in mine}, now
            ),
        )

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Put messages of other origin into the group's dead letters, all in one transaction."""
        if not burials:
            return ()
        try:
            Administration(self._link, subscription, self._settings.place).publish_dead_letters(
                burials, self._scope.clock.now()
            )
        except BrokerError as error:
            return [Refused(error) for _ in burials]
        return [CONFIRMED for _ in burials]

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Keep deliveries for at least `by` from now."""
        until = microseconds(self._scope.clock.now()) + microseconds_of(by)
        expires_at = self._scope.clock.monotonic() + by.total_seconds()
        session = self._link.session
        mine, failed = self._custody.unsettled(deliveries, session.generation if session else 0)
        if not mine or session is None:
            return failed
        holds = [delivery.token.hold for delivery in mine]
        try:
            done = session.database.write(lambda connection: settlements.extend(connection, holds, until))
        except BrokerError as error:
            return [*failed, *(SettleFailed(delivery, error) for delivery in mine)]
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
            return [*failed, *(SettleFailed(delivery, error) for delivery in mine)]
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
        refusals = [refusal(self._settings, topic, message) for message in messages]
        now = self._scope.clock.now()
        writable = [stored(item, now) for item, no in zip(messages, refusals, strict=True) if no is None]
        try:
            if writable:
                self._link.write(lambda connection: topics.publish(connection, topic, writable), durable=True)
        except BrokerError as error:
            return [Refused(no or error) for no in refusals]
        self._wake()
        return [CONFIRMED if no is None else Refused(no) for no in refusals]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Return the group's dead letters, oldest first, without consuming them."""
        return Administration(self._link, subscription, self._settings.place).letters(limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again, with fresh attempts."""
        count = Administration(self._link, subscription, self._settings.place).replay(ids)
        self._wake()
        return count

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        return Administration(self._link, subscription, self._settings.place).purge(ids)

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group, delayed ones included, those in hands not."""
        return Administration(self._link, subscription, self._settings.place).depth()

    def dead_letter_count(self, subscription: Subscription) -> int:
        """Return how many dead letters the group has."""
        return Administration(self._link, subscription, self._settings.place).dead_letter_count()

    def backlog(self, subscription: Subscription) -> Backlog:
        """Return how many messages are ready, leased and delayed."""
        return Administration(self._link, subscription, self._settings.place).backlog()

    def _wake(self) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.wake()


class InMemoryAdapter(EmbeddedAdapter):
    """`embedded://name`: shared by the adapters of one process; ends with the last of them that is open."""

    capabilities: ClassVar[Capabilities] = replace(EmbeddedAdapter.capabilities, survives_restart=False)


def _with(delivery: Delivery, added: Mapping[str, str]) -> str:
    message = delivery.message
    return pack({**message.headers, **added}, message.keys, message.message_id)
