"""Test kit for handlers: an app with its real engine, strategies and configuration, on a broker in memory."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from uuid import uuid4

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.app import App, load_for_test
from oncemq.common.clock import Clock, SystemClock
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.plan import Substitutes
from oncemq.contracts.adapter import Adapter, Refused
from oncemq.contracts.broker_queries import PruningAdapter, names_of
from oncemq.engine.plan import AppPlan, ConsumerPlan, Part
from oncemq.engine.publishers.app_publisher import AppPublisher, NewMessage
from oncemq.message.claims.store import Store
from oncemq.message.envelope import OutgoingMessage
from oncemq.operate.dead_letters import AppDeadLetter
from oncemq.operate.letters import letters_of
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.kit.clock import TestClock
from oncemq.testing.kit.databases import Databases, Tables, reading
from oncemq.testing.kit.memory_broker import MemoryAdapter, MemoryBroker, RequestingMemoryAdapter
from oncemq.testing.kit.messages import PublishedMessage, as_new, as_sent
from oncemq.testing.kit.outcomes import Outcome, OutcomeRecorder
from oncemq.testing.kit.publisher import KitPublisher
from oncemq.testing.kit.recording_adapter import RecordingAdapter
from oncemq.testing.kit.stepped_process import ProcessDied, SteppedProcess
from oncemq.testing.kit.threaded_process import ThreadedProcess

_BEFORE_ACK: Final = "before-ack"
_GRACE: Final = timedelta(seconds=5)


class TestApp:
    """An app under test: `with TestApp("app.yaml", tables=Base.metadata) as app:`.

    Engine, strategies and configuration are real. The broker is in memory, the database a SQLite file that only this
    test uses, and the clock moves only by `app.clock.advance(…)`. Everything runs in the test's own thread: when
    `publish` returns, the message is applied, refused or postponed, as its outcome says. Strategies that need Redis
    use the app's.

    Args:
        app: an `oncemq.App`, or the path of its YAML file.
        overlays: files laid over the first, as `oncemq -f app.yaml -f test.yaml`.
        tables: the tables that handlers use: their metadata, or a function that creates them on an engine.
        database: the URL of a server to use instead of SQLite, or one for each shard; each test gets a schema
            (PostgreSQL) or database (MySQL, MariaDB) of its own there.
        real: run the same test on the brokers and databases that the app declares, in threads as in production.
    """

    __test__: ClassVar[bool] = False

    def __init__(
        self,
        app: App | str | Path,
        *overlays: str | Path,
        tables: Tables | None = None,
        database: str | Sequence[str] | None = None,
        real: bool = False,
    ) -> None:
        self._app = app if isinstance(app, App) else App.from_yaml(app, *overlays)
        self._real = real
        self._fake_clock = FakeClock(datetime.now(SystemClock().now().tzinfo))
        clock: Clock = SystemClock() if real else self._fake_clock
        self._own_clock = clock
        self.clock = TestClock(clock, self._advance)
        urls = [database] if isinstance(database, str) else database
        self._given = urls
        self._databases = Databases(urls, tables, None if real else clock)
        self._recorder = OutcomeRecorder()
        self._published: list[PublishedMessage] = []
        self._brokers: dict[str, MemoryBroker] = {}
        self._token = uuid4().hex[:8]
        self._dying = False
        self._plan: AppPlan | None = None
        self._adapters: dict[str, Adapter] = {}
        self._process: SteppedProcess | ThreadedProcess | None = None
        self._engines: list[Engine] = []

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Life

    def open(self) -> None:
        """Start the app; `with` does it.

        Raises:
            ConfigError: the app cannot run; carries every problem.
        """
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the app, and remove what the test has created in brokers and databases; `with` does it."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            if self._real:
                self._remove_places()
        for engine in self._engines:
            engine.dispose()
        self._engines = []
        self._databases.close()

    def _start(self) -> None:
        substitutes = Substitutes(self._own_clock, self._engines_for, _installed(), self._store_for)
        plan = load_for_test(self._app, substitutes).plan
        self._adapters = dict(plan.adapters) if self._real else self._in_memory(plan)
        recorded: dict[str, Any] = {
            name: RecordingAdapter(adapter, self._recorder, self._expected, self._published.append)
            for name, adapter in self._adapters.items()
        }
        consumers = tuple(self._prepared(consumer) for consumer in plan.consumers)
        self._plan = replace(plan, adapters=recorded, consumers=consumers, state=None, http=None)
        self._process = self._new_process(self._plan)
        self._process.start()

    def _engines_for(self, declared: Sequence[str]) -> Sequence[Engine]:
        if not self._real and self._given is None:
            declared = ["sqlite://"] * len(declared)
        if not self._engines:
            self._engines = [reading(engine) for engine in self._databases.engines(declared)]
        return self._databases.engines(declared)

    def _store_for(self, url: str, options: Mapping[str, Any]) -> Store:
        """Return the store of large bodies: a folder of the test's own in the place of the one at `url`."""
        if self._real:
            return Store(url, options)
        return Store((self._databases.folder() / "bodies" / sha256(url.encode()).hexdigest()).as_uri())

    def _in_memory(self, plan: AppPlan) -> dict[str, Adapter]:
        for name in plan.adapters:
            self._brokers.setdefault(name, MemoryBroker(plan.clock))
        return {
            name: RequestingMemoryAdapter(broker, name, self._work_until)
            if plan.adapters[name].capabilities.requests
            else MemoryAdapter(broker, name)
            for name, broker in self._brokers.items()
        }

    def _prepared(self, consumer: ConsumerPlan) -> ConsumerPlan:
        subscription = consumer.subscription
        if self._real:
            # Messages that an earlier test left behind belong to its group.
            subscription = replace(subscription, group=f"{subscription.group}-{self._token}")
        return replace(
            consumer,
            handler=self._recorder.recording(consumer.handler),
            more_parts=self._recorded(consumer.more_parts),
            more_chains=tuple(map(self._recorded, consumer.more_chains)),
            subscription=subscription,
            rate=None,
        )

    def _recorded(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(replace(part, handler=self._recorder.recording(part.handler)) for part in parts)

    def _new_process(self, plan: AppPlan) -> SteppedProcess | ThreadedProcess:
        if self._real:
            return ThreadedProcess(plan, self._recorder, self._point)
        deliver = [
            adapter.deliver for adapter in self._adapters.values() if isinstance(adapter, MemoryAdapter)
        ]
        return SteppedProcess(
            plan, deliver, self._next_delivery, self._fake_clock, self._recorder, self._point
        )

    def _next_delivery(self) -> datetime | None:
        found = [broker.next_due() for broker in self._brokers.values()]
        return min((due for due in found if due is not None), default=None)

    def _remove_places(self) -> None:
        """Remove the groups of this test from the brokers."""
        consumers = self._plan.consumers if self._plan is not None else ()
        for name, adapter in self._app.load(consumers=False).plan.adapters.items():
            places = [
                names_of(adapter, name, consumer.subscription)
                for consumer in consumers
                if consumer.broker == name
            ]
            if not places or not isinstance(adapter, PruningAdapter):
                continue
            adapter.prepare([])
            try:
                for place in places:
                    own = [each for each in place.names if self._token in each] if place is not None else []
                    if place is not None and own:
                        adapter.remove_places(place.broker, own)
            finally:
                adapter.close(grace=_GRACE)

    # Messages

    def publish(
        self,
        topic: str,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: dict[str, str] | None = None,
        message_id: str | None = None,
    ) -> Outcome:
        """Publish a message as another service would, let the app handle it, and return what became of it.

        Args:
            topic: the name of a topic below `topics`.
            body: anything the topic's format can hold; bytes are sent unchanged, also what no consumer can read.
            key: the broker's business key, for topics with `key: keys[0]`.
            version: sent in the header `version`.
            headers: text to text.
            message_id: your own id instead of a generated one.

        Raises:
            Unpublishable: no such topic, or its format cannot encode the body.
        """
        return self._send(
            [(topic, self._message(topic, NewMessage(body, key, version, headers, message_id)))]
        )[0]

    def publish_many(self, topic: str, messages: Iterable[Any]) -> list[Outcome]:
        """Publish messages that arrive together, and return what became of each.

        Args:
            topic: the name of a topic.
            messages: bodies, or `oncemq.NewMessage` if a body alone is not enough.
        """
        return self._send([(topic, self._message(topic, as_new(message))) for message in messages])

    def shuffle(self, messages: Iterable[Outcome | tuple[str, Any]], *, seed: int = 0) -> list[Outcome]:
        """Publish messages that arrive together in another order; returns what became of each, in the given order.

        Args:
            messages: pairs of a topic and a body or `oncemq.NewMessage`; or outcomes, whose messages are sent again.
            seed: decides the order.
        """
        sent = [
            (message.topic, message.message)
            if isinstance(message, Outcome)
            else (message[0], self._message(message[0], as_new(message[1])))
            for message in messages
        ]
        order = list(range(len(sent)))
        random.Random(seed).shuffle(order)  # noqa: S311 - a test's order
        outcomes = dict(zip(order, self._send([sent[index] for index in order]), strict=True))
        return [outcomes[index] for index in range(len(sent))]

    def duplicate(self, outcome: Outcome) -> Outcome:
        """Publish the same message again, as a producer that has not seen the confirmation."""
        return self._send([(outcome.topic, outcome.message)])[0]

    def redeliver(self, outcome: Outcome) -> Outcome:
        """Let the broker deliver the same message again, as after a lost acknowledgement.

        Real brokers do that on their own account only: with `real=True` the message is published again.
        """
        if self._real:
            return self.duplicate(outcome)
        again = self._expected(outcome.topic, outcome.message)
        for consumer in self._running.consumers:
            adapter = self._adapters[consumer.broker]
            if consumer.subscription.topic == outcome.topic and isinstance(adapter, MemoryAdapter):
                adapter.redeliver(consumer.subscription, outcome.message)
        self._settle()
        return again

    def replay(self, outcome: Outcome) -> Outcome:
        """Send the dead letters of a message to their consumers again, as `oncemq dead-letters replay`; returns the new outcome.

        Raises:
            LookupError: it has none.
        """
        plan, found = self._running, []
        for consumer in plan.consumers:
            letters = letters_of(plan, plan.adapters[consumer.broker], consumer)
            ids = [each.id for each in letters.all() if each.message.message_id == outcome.message_id]
            if ids:
                found.append((letters, ids))
        if not found:
            raise LookupError(f"no consumer has a dead letter of this message: {outcome!r}")
        again = self._expected(outcome.topic, outcome.message)
        for letters, ids in found:
            letters.replay(ids)
        self._settle()
        return again

    def crash_after_commit(self, topic: str, body: Any, **more: Any) -> Outcome:
        """Publish a message, and let the process die after its effects are committed and before it is acknowledged.

        The app is then started again, and the broker delivers the message again: the outcome is that of the second
        delivery, `outcome.history()` has both.

        Args:
            topic: the name of a topic.
            body: as for `publish`.
            more: as for `publish`.

        Raises:
            AssertionError: the message was not applied, so the process did not die.
        """
        message = self._message(topic, NewMessage(body, **more))
        outcome = self._expected(topic, message)
        self._dying = True
        try:
            self._transmit([(topic, message)])
            died = self._run_until_death()
        finally:
            self._dying = False
        if not died:
            raise AssertionError(f"nothing was committed, so the process did not die: {outcome!r}")
        self._restart(outcome)
        return outcome

    def published(self, topic: str | None = None) -> list[PublishedMessage]:
        """Return what the app's handlers have published, in order; of one topic, or of all."""
        return [message for message in self._published if topic in (None, message.topic)]

    def dead_letters(self, consumer: str | None = None) -> list[AppDeadLetter]:
        """Return dead letters, each consumer's oldest first; of one consumer, or of all."""
        plan = self._running
        return [
            AppDeadLetter.of(owner, letter)
            for owner in plan.consumers
            if consumer in (None, owner.name, owner.called)
            for letter in letters_of(plan, plan.adapters[owner.broker], owner).all()
        ]

    def publisher(self) -> AppPublisher:
        """Return a publisher as code outside of handlers has, also to request answers, which the app's own consumers give."""
        return KitPublisher(lambda: self._running, in_memory=not self._real)

    def session(self, shard: int = 0) -> Session:
        """Return a new session on the app's database, to prepare rows and to assert effects: `with app.session() as session:`.

        Args:
            shard: the number of the database, from 0, if it is sharded.

        Raises:
            LookupError: the app has no database.
        """
        return Session(self.engine(shard))

    def engine(self, shard: int = 0) -> Engine:
        """Return the engine of the app's database.

        Raises:
            LookupError: the app has no database.
        """
        if shard >= len(self._engines):
            raise LookupError(f"the app has {len(self._engines)} databases, so there is no number {shard}")
        return self._engines[shard]

    @property
    def _running(self) -> AppPlan:
        if self._process is None or self._plan is None:
            raise RuntimeError("the app does not run: use `with TestApp(…) as app:`")
        return self._plan

    def _message(self, topic: str, new: NewMessage) -> OutgoingMessage:
        return as_sent(self._running.topics, topic, new)

    def _expected(self, topic: str, message: OutgoingMessage) -> Outcome:
        consumers = [
            consumer.name for consumer in self._running.consumers if consumer.subscription.topic == topic
        ]
        outcome = Outcome(topic, message, consumers)
        self._recorder.expect(outcome)
        return outcome

    def _send(self, sent: Sequence[tuple[str, OutgoingMessage]]) -> list[Outcome]:
        outcomes = [self._expected(topic, message) for topic, message in sent]
        self._transmit(sent)
        self._settle()
        return outcomes

    def _transmit(self, sent: Sequence[tuple[str, OutgoingMessage]]) -> None:
        for topic, message in sent:
            declared = self._running.topics[topic]
            (answer,) = self._adapters[declared.broker].publish(topic, declared.options, [message])
            if isinstance(answer, Refused):
                raise answer.error

    # Work

    def _settle(self) -> None:
        if self._process is not None:
            self._process.settle()

    def _work_until(self, reached: Callable[[], bool], within: timedelta) -> None:
        if isinstance(self._process, SteppedProcess):
            self._process.work_until(reached, within)

    def _advance(self, by: timedelta) -> None:
        if self._process is not None:
            self._process.advance(by)

    def _point(self, name: str) -> None:
        if self._dying and name == _BEFORE_ACK:
            self._dying = False
            raise ProcessDied("the test lets the process die here")

    def _run_until_death(self) -> bool:
        process = self._process
        if isinstance(process, ThreadedProcess):
            return process.ends_when(lambda: not self._dying)
        try:
            self._settle()
        except ProcessDied:
            return True
        return False

    def _restart(self, outcome: Outcome) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()
        before = outcome.deliveries
        self._start()
        if isinstance(self._process, ThreadedProcess):
            self._process.settle(lambda: outcome.deliveries > before)
        else:
            self._settle()


@cache
def _installed() -> Catalog:
    """Return the installed adapters and strategies, which a process looks up once."""
    return Catalog()
