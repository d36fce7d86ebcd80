"""An app over a scripted adapter, for tests of the engine: real units on a real database, deliveries by hand."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publisher, Publishers
from oncemq.contracts.strategy import Strategy
from oncemq.engine.application import Application
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.handler.binding import bind
from oncemq.ledger import schema
from oncemq.message.decoding import make_decoder
from oncemq.message.outgoing import OutgoingTopic
from oncemq.message.reader import Reader
from oncemq.observe.events import Observer
from oncemq.observe.monitor import Monitor
from oncemq.retry.backoff import RetryPolicy


def make_consumer(
    handler: Callable[..., Any],
    strategies: Sequence[Strategy] = (),
    *,
    name: str = "points",
    effects: Effects = Effects.DATABASE,
    version: str | None = None,
    identity: Sequence[str] = ("body.id",),
    topics: Mapping[str, OutgoingTopic] = MappingProxyType({}),
    **fields: Any,
) -> ConsumerPlan:
    """Return a consumer of the topic `orders`: key `body.key`, identity `body.id` unless told otherwise."""
    provided = {asked: get for strategy in strategies for asked, get in strategy.provides().items()}
    publishers = Publishers(topics)
    fields.setdefault("retry", RetryPolicy(attempts=3, first=timedelta(milliseconds=10)))
    return ConsumerPlan(
        name=name,
        scope=f"shop.{name}",
        broker="main",
        subscription=Subscription(name, "orders", name),
        reader=Reader(
            "main", "orders", name, key="body.key", version=version, identity=identity, decoder=make_decoder()
        ),
        handler=bind(
            handler,
            name=f"tests:{name}",
            provided={Publisher: publishers.of_item, **provided},
            shared={Publisher: publishers.of_run},
            effects=effects,
        ),
        effects=effects,
        strategies=tuple(strategies),
        **fields,
    )


def make_app(adapter: Adapter, engine: Engine | None, *consumers: ConsumerPlan, **fields: Any) -> AppPlan:
    """Return an app with these consumers, all on `adapter`; its ledger tables are created."""
    topics = fields.get("topics", {})
    others = {topic.broker: adapter for topic in topics.values()}
    fields.setdefault("grace", timedelta(seconds=5))
    plan = AppPlan("shop", {**others, "main": adapter}, engine, consumers, SystemClock(), **fields)
    if engine is not None:
        schema.create(engine, plan.tables())
    return plan


def make_topic(
    name: str, *, broker: str = "main", key: str | None = "body.key", body_format: str = "json"
) -> OutgoingTopic:
    """Return a topic that handlers may publish to."""
    decoder = make_decoder(body_format)
    reader = None
    if key is not None:
        reader = Reader(broker, name, "", key=key, version=None, identity=(), decoder=decoder)
    return OutgoingTopic(name, broker, {}, body_format, decoder, reader)


@contextmanager
def running(
    plan: AppPlan, *, observers: Sequence[Observer] = (), point: Callable[[str], None] = nothing
) -> Iterator[Application]:
    """Run an app in a thread until the block ends; an error of the app is raised here."""
    monitor = Monitor(None, plan.clock, others=observers)
    errors: list[BaseException] = []
    opened = threading.Event()
    adapters = {name: _Announcing(adapter, opened) for name, adapter in plan.adapters.items()}
    app = Application(replace(plan, adapters=adapters), monitor=monitor, point=point)

    def run() -> None:
        try:
            app.run()
        except BaseException as error:
            errors.append(error)
        finally:
            opened.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not opened.wait(20):
        raise AssertionError("the app did not open its adapters")
    try:
        if not errors:
            yield app
    finally:
        app.stop()
        thread.join(30)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise AssertionError("the app did not end")


class _Announcing:
    """Passes everything on to an adapter, and says when it has been opened."""

    def __init__(self, adapter: Adapter, opened: threading.Event) -> None:
        self._adapter = adapter
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def open(self, *arguments: Any) -> None:
        self._adapter.open(*arguments)
        self._opened.set()
