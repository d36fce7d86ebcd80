"""One process of a consumer without threads: the real crew, whose workers move when the test says so, and can be killed."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, MetaData, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from oncemq.contracts.checks import Effects
from oncemq.contracts.strategy import Scope, Strategy
from oncemq.engine.application import ConsumerSink
from oncemq.engine.base.overtaken import OVERTAKEN
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.crash.time_limits import Watchdog
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.process_context import ProcessContext
from oncemq.errors import InfrastructureError, Reject, Retry
from oncemq.message.envelope import Delivery, Envelope
from oncemq.message.expressions import compile_expression
from oncemq.observe.events import Observer
from oncemq.observe.observers import Observers
from oncemq.observe.state import PauseReason
from oncemq.redis import RedisClient
from oncemq.registry import STRATEGIES, Registry
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.fake_clock import FakeClock
from support.effects import TAKE_THE_TAKEN, Effect, Name
from support.engine import make_consumer
from support.model.broker import ModelBroker

ATTEMPTS = 3
CONSUMER = "model"
SCOPE = f"shop.{CONSUMER}"
STATES = [f"s{number}" for number in range(1, 10)]
WORKERS = 2

Strategies = Sequence[tuple[str, dict[str, Any]]]


class Killed(BaseException):
    """The process is no more."""


class Bad(Exception):
    """What failing handlers raise."""


def handle(order: dict[str, Any], envelope: Envelope, session: Session) -> None:
    """Leave one effect, or fail in the way that the order names for this attempt."""
    does = order["does"]
    act = does[envelope.attempt - 1] if envelope.attempt <= len(does) else "add"
    effect = {"order_id": envelope.identity, "key": order["key"], "attempt": envelope.attempt}
    ACTS[act](session, effect)


def _fail(session: Session, effect: dict[str, Any]) -> None:
    raise Bad("before anything")


def _retry(session: Session, effect: dict[str, Any]) -> None:
    raise Retry("again")


def _reject(session: Session, effect: dict[str, Any]) -> None:
    raise Reject("no")


def _add(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))


def _insert(session: Session, effect: dict[str, Any]) -> None:
    session.execute(insert(Effect).values(**effect))


def _read(session: Session, effect: dict[str, Any]) -> None:
    session.scalars(select(Effect.id).where(Effect.key == effect["key"]).limit(1)).all()
    session.add(Effect(**effect))


def _commit(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))
    session.commit()


def _add_and_fail(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))
    raise Bad("after session.add")


def _insert_and_fail(session: Session, effect: dict[str, Any]) -> None:
    session.execute(insert(Effect).values(**effect))
    raise Bad("after a statement")


def _swallow(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))
    try:
        session.execute(TAKE_THE_TAKEN)
    except SQLAlchemyError:
        return


def _poison(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))
    session.add(Name(name="taken"))


def _roll_back(session: Session, effect: dict[str, Any]) -> None:
    session.add(Effect(**effect))
    session.rollback()


GOOD: dict[str, Callable[[Session, dict[str, Any]], None]] = {
    "add": _add,
    "insert": _insert,
    "read": _read,
    "commit": _commit,
}
FAILING: dict[str, Callable[[Session, dict[str, Any]], None]] = {
    "fail": _fail,
    "retry": _retry,
    "add and fail": _add_and_fail,
    "insert and fail": _insert_and_fail,
    "swallow": _swallow,
    "poison": _poison,
    "roll back": _roll_back,
}
"""Each costs its message an attempt."""
ACTS = {**GOOD, **FAILING, "reject": _reject}


class Told(Observer):
    """What the engine said about messages.

    Attributes:
        charged: identity and attempt of every try that was charged.
        unlucky: identities that the database failed so often that it counted as their own doing.
        troubles: what should never happen.
    """

    def __init__(self) -> None:
        self.charged: set[tuple[str, int]] = set()
        self.unlucky: set[str] = set()
        self.troubles: list[str] = []

    def retried(self, consumer: str, delivery: Delivery, **fields: Any) -> None:
        """Note a try that was charged."""
        self._charged(delivery, fields.get("error"))

    def dead_lettered(self, consumer: str, delivery: Delivery, **fields: Any) -> None:
        """Note a last try."""
        if fields.get("code") == OVERTAKEN:
            return  # it did not run again: its tries were noted before
        self._charged(delivery, fields.get("error"))

    def _charged(self, delivery: Delivery, error: BaseException | None) -> None:
        if delivery.envelope is None:
            return
        self.charged.add((delivery.envelope.identity, delivery.message.attempt))
        if isinstance(error, InfrastructureError):
            self.unlucky.add(delivery.envelope.identity)

    def consumer_paused(self, consumer: str, reason: Any, **fields: Any) -> None:
        """No strategy may ever be at fault."""
        if reason is PauseReason.STRATEGY_BUG:
            self.troubles.append(f"paused: {fields.get('error')!r}")

    def failed(self, doing: str, error: BaseException) -> None:
        """A side job may fail by an ordered fault of the database only."""
        if not isinstance(error, SQLAlchemyError):
            self.troubles.append(f"{doing}: {error!r}")


class _Leaving(threading.Event):
    """No one waits in real time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Let the clock go on instead."""
        self._clock.advance(timedelta(seconds=timeout or 0))
        return self.is_set()


class Process:
    """One process of the consumer, from its start until it is killed.

    Args:
        engine: the database.
        clock: where time comes from.
        broker: where messages come from; the process connects at once.
        strategies: the chain, by registry name and options.
        told: hears what the engine says.
        handler: the consumer's.
        hold_key: keys wait while one of their messages is tried again.
        name: the consumer's.
        effects: where the handler has them.
        redis: the strategies'; None = there is none.

    Attributes:
        ambushes: by a point's name, what happens when a message next comes there.
    """

    def __init__(
        self,
        engine: Engine,
        clock: FakeClock,
        broker: ModelBroker,
        strategies: Strategies,
        told: Told,
        handler: Callable[..., None] = handle,
        *,
        hold_key: bool = False,
        name: str = CONSUMER,
        effects: Effects = Effects.DATABASE,
        redis: RedisClient | None = None,
    ) -> None:
        self.ambushes: dict[str, Callable[[], None]] = {}
        self.taken: list[list[Delivery]] = [[] for _ in range(WORKERS)]
        self.line = broker.connect()
        built = _build(engine, clock, strategies, f"shop.{name}", redis)
        plan = make_consumer(
            handler,
            built,
            name=name,
            version="body.version",
            identity=(),
            workers=WORKERS,
            hold_key=hold_key,
            effects=effects,
            retry=RetryPolicy(attempts=ATTEMPTS, first=timedelta(seconds=1), factor=2, jitter=0),
        )
        shop = ProcessContext(
            (engine,),
            None,
            None,
            clock,
            Observers([told]),
            Watchdog(clock.monotonic, _ignore, _ignore),
            None,
            "model",
            None,
            threading.Lock(),
            _Leaving(clock),
            Publishing({}, {}, frozenset()),
            (None,),
            self._passed,
        )
        crew = ConsumerRuntime(plan, self.line, shop)
        self._clock = clock
        self._engine = engine
        self._sweeps = crew.upkeep(0)
        self.consumer = crew.consumer
        vars(self.consumer.gate)["sleep"] = lambda seconds: clock.advance(timedelta(seconds=seconds))
        self._aftermath = crew._aftermath
        self._workers = [crew._worker(number) for number in range(WORKERS)]
        self.line.open([plan.subscription], ConsumerSink({name: crew}))

    def take(self, worker: int, limit: int) -> None:
        """Let a worker take what is ready, unless it holds something or the consumer is paused."""
        gate = self.consumer.gate
        if self.taken[worker] or gate._closed_until > self._clock.monotonic():
            return
        self.taken[worker] = self.consumer.scheduler.take(limit, 0.0)
        self.consumer.started(self.taken[worker])

    def work(self, worker: int) -> None:
        """Let a worker bring what it holds to its end.

        Raises:
            Killed: an ambush killed the process.
        """
        taken, self.taken[worker] = self.taken[worker], []
        if taken:
            self._workers[worker].work(taken)
            self._aftermath.catch_up()
            self.consumer.finished(taken)

    def sweep(self) -> None:
        """Take what is parked and due."""
        for task in self._sweeps:
            task.run(self._engine)

    def holds(self) -> list[int]:
        """Return the numbers of the deliveries that wait here or are taken, and are not void."""
        scheduler = self.consumer.scheduler
        here = [*scheduler.snapshot(), *(each for taken in self.taken for each in taken)]
        return sorted(each.token for each in here if not scheduler.is_void(each))

    def _passed(self, point: str) -> None:
        ambush = self.ambushes.pop(point, None)
        if ambush is not None:
            ambush()


def _ignore(consumer: str) -> None:
    """No handler has a time limit here."""


def _build(
    engine: Engine, clock: FakeClock, strategies: Strategies, consumer: str, redis: RedisClient | None
) -> list[Strategy]:
    registry: Registry[Strategy] = Registry(STRATEGIES, "strategy")
    scope = Scope(
        app="shop",
        consumer=consumer,
        dialect=engine.dialect.name,
        engine=engine,
        metadata=MetaData(),
        clock=clock,
        keep=timedelta(days=7),
        expression=compile_expression,
        import_object=lambda name: name,
        redis=redis,
    )
    return [registry.get(name).build(options, scope) for name, options in strategies]
