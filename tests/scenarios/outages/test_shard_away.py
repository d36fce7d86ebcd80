"""One shard of a sharded database is away: the keys of the other shards go on, and its own wait without a loss."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from oncemq import App, Done
from oncemq.common.sharding import Layout
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.plan import AppPlan
from oncemq.engine.settlement import settler as settle
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe import logs
from oncemq.observe.state import PauseReason
from oncemq.testing.tcp_proxy import TcpProxy
from support.apps.program import eventually
from support.effects import Base, effects, give
from support.engine import running
from support.heard import Heard

LAYOUT = Layout.even(2)
KEYS = [f"k{number}" for number in range(40)]
MESSAGES = 500
PROMPTLY = 20.0
"""Seconds for 250 messages, beside other tests."""


class Shards:
    """Two databases on PostgreSQL, of which the second can be cut off."""

    def __init__(self, server: str, names: list[str], door: TcpProxy) -> None:
        there = make_url(server)
        self.door = door
        here = [there.set(database=name).render_as_string(hide_password=False) for name in names]
        away = there.set(database=names[1], host="127.0.0.1", port=door.port)
        self.urls = [here[0], away.render_as_string(hide_password=False)]
        self.engines = [make_engine(url) for url in here]

    def effects(self, shard: int) -> list[str]:
        """Return the orders that took effect there."""
        return effects(self.engines[shard])


@pytest.fixture(autouse=True)
def said() -> Iterator[io.StringIO]:
    """What is logged, which is much while a database is away."""
    text = io.StringIO()
    logs.configure("warning", "json", text)
    yield text
    logs.configure("warning", "console")


@pytest.fixture
def consumer_pauses(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Why a whole consumer was paused; it continues by itself after a while, so that its effects alone do not show it."""
    reasons: list[BaseException] = []
    pause = Consumer.pause

    def noted(consumer: Consumer, trouble: InfrastructureError | StrategyBug) -> None:
        reasons.append(trouble)
        pause(consumer, trouble)

    monkeypatch.setattr(Consumer, "pause", noted)
    return reasons


@pytest.fixture
def two(postgresql_url: str, fresh: str) -> Iterator[Shards]:
    """Two databases with the tests' tables."""
    server = make_url(postgresql_url)
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    names = [f"{fresh}_{number}" for number in range(2)]
    with ExitStack() as stack:
        stack.callback(admin.dispose)
        connection = stack.enter_context(admin.connect())
        for name in names:
            connection.execute(text(f"CREATE DATABASE {name}"))
            stack.callback(connection.execute, text(f"DROP DATABASE {name} WITH (FORCE)"))
        door = stack.enter_context(TcpProxy(server.host or "127.0.0.1", server.port or 5432))
        made = Shards(postgresql_url, names, door)
        for engine in made.engines:
            stack.callback(engine.dispose)
            Base.metadata.create_all(engine)
        yield made


def app_on(two: Shards, folder: Path) -> App:
    """Return an app without consumers."""
    app = App(
        "shop",
        brokers={"main": f"embedded:///{folder}/broker.db"},
        database={"shards": two.urls, "by": "key"},
        state=str(folder),
    )
    app.topic("orders", key="body.key", identity="body.id")
    return app


def started(app: App) -> AppPlan:
    """Return the plan; its tables and queues are there."""
    plan = app.plan()
    for engine in plan.engines:
        schema.create(engine, plan.tables())
    shards.create(plan.engines, plan.name, plan.layout)
    plan.adapters["main"].prepare([consumer.subscription for consumer in plan.consumers])
    return plan


def publish(plan: AppPlan, orders: list[dict[str, Any]]) -> None:
    """Publish these."""
    plan.adapters["main"].publish(
        "orders", {}, [OutgoingMessage(json.dumps(order).encode()) for order in orders]
    )


def orders(first: int, count: int, shard: int | None = None) -> list[dict[str, Any]]:
    """Return orders with keys in turn, of one shard or both."""
    keys = [key for key in KEYS if shard is None or LAYOUT.shard_of(key) == shard]
    return [{"id": str(first + at), "key": keys[at % len(keys)]} for at in range(count)]


def of(shard: int, found: list[dict[str, Any]]) -> set[str]:
    """Return the ids of the orders of a shard."""
    return {order["id"] for order in found if LAYOUT.shard_of(order["key"]) == shard}


def test_the_keys_of_the_other_shard_go_on(
    two: Shards, tmp_path: Path, consumer_pauses: list[BaseException]
) -> None:
    """What can run is applied promptly; the rest waits, in its order, and status says which shard is away."""
    app = app_on(two, tmp_path)

    @app.consumer(topic="orders", strategies=["unique_key"], name="points")
    def count(order: dict, session: Session) -> None:
        give(session, order)

    plan, sent = started(app), orders(0, MESSAGES)
    with running(plan) as run:
        publish(plan, orders(1000, 40))
        eventually(lambda: len(two.effects(0)) + len(two.effects(1)) == 40, "both shards")
        two.door.refuse()
        publish(plan, sent)
        eventually(lambda: of(0, sent) <= set(two.effects(0)), "the shard that answers", PROMPTLY)
        assert consumer_pauses == []
        [row] = run.state().consumers
        assert row.paused is PauseReason.DATABASE
        assert "shard 2 of 2" in row.detail
        assert not of(1, sent) & set(two.effects(1))
        publish(plan, orders(2000, 40, shard=0))
        eventually(
            lambda: of(0, orders(2000, 40, shard=0)) <= set(two.effects(0)), "what comes later", PROMPTLY
        )
        two.door.accept()
        eventually(lambda: of(1, sent) <= set(two.effects(1)), "the shard that was away")
        eventually(lambda: run.state().consumers[0].paused is None, "the end of the pause")
    assert sorted(two.effects(0) + two.effects(1)) == sorted(
        order["id"] for order in sent + orders(1000, 40) + orders(2000, 40, shard=0)
    )
    places = {order["id"]: at for at, order in enumerate(sent)}
    for key in KEYS:
        mine = [
            effect for effect in two.effects(1) if effect in places and sent[places[effect]]["key"] == key
        ]
        assert mine == sorted(mine, key=places.__getitem__)


def test_keys_that_are_held_for_a_retry_go_on_at_the_other_shard(two: Shards, tmp_path: Path) -> None:
    """A failed message waits in its own shard's ledger with its successors behind it; the other shard's keys keep their order."""
    app, failed = app_on(two, tmp_path), set[str]()

    @app.consumer(
        topic="orders",
        strategies=["unique_key"],
        name="points",
        on_retry="hold_key",
        retry={"attempts": 5, "backoff": {"first": "200ms"}},
    )
    def count(order: dict, session: Session) -> None:
        give(session, order)
        if order.get("fails") and order["id"] not in failed:
            failed.add(order["id"])
            raise ValueError("not yet")

    plan = started(app)
    sent = [{**order, "fails": at % 7 == 0} for at, order in enumerate(orders(0, 200))]
    with running(plan) as run:
        publish(plan, orders(1000, 40))
        eventually(lambda: len(two.effects(0)) + len(two.effects(1)) == 40, "both shards")
        two.door.refuse()
        publish(plan, sent)
        eventually(lambda: of(0, sent) <= set(two.effects(0)), "the shard that answers", PROMPTLY)
        assert not of(1, sent) & set(two.effects(1))
        two.door.accept()
        eventually(lambda: of(1, sent) <= set(two.effects(1)), "the shard that was away")
        eventually(lambda: run.state().consumers[0].paused is None, "the end of the pause")
    assert sorted(two.effects(0) + two.effects(1)) == sorted(order["id"] for order in sent + orders(1000, 40))
    places = {order["id"]: at for at, order in enumerate(sent)}
    for shard, key in product((0, 1), KEYS):
        mine = [name for name in two.effects(shard) if name in places and sent[places[name]]["key"] == key]
        assert mine == sorted(mine, key=places.__getitem__)


async def _mail(order: dict) -> None:
    await asyncio.sleep(0)
    MAILED.append(order["id"])


def _mail_plain(order: dict) -> None:
    MAILED.append(order["id"])


MAILED: list[str] = []


@pytest.mark.parametrize("mail", [_mail, _mail_plain], ids=["async def", "def"])
def test_direct_handlers_of_the_other_shard_go_on(
    two: Shards, tmp_path: Path, mail: Callable[..., Any], consumer_pauses: list[BaseException]
) -> None:
    """Claims that cannot be written keep off the handlers of their shard alone."""
    MAILED.clear()
    app = app_on(two, tmp_path)
    strategies = [{"two_phase": {"verify": lambda _envelope: Done()}}]
    app.consumer(topic="orders", effects="external", strategies=strategies, name="mail")(mail)
    plan, sent = started(app), orders(0, 100)
    with running(plan):
        publish(plan, orders(1000, 40))
        eventually(lambda: len(MAILED) == 40, "both shards")
        two.door.refuse()
        publish(plan, sent)
        eventually(lambda: of(0, sent) <= set(MAILED), "the shard that answers", PROMPTLY)
        assert consumer_pauses == []
        assert not of(1, sent) & set(MAILED)
        two.door.accept()
        eventually(lambda: of(1, sent) <= set(MAILED), "the shard that was away")
    assert sorted(MAILED) == sorted(order["id"] for order in sent + orders(1000, 40))


def test_what_waits_for_long_is_kept_by_the_broker(
    two: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of the shard that is away, larger than what a process takes, does not keep the others from their turn."""
    monkeypatch.setattr(settle, "_HELD_TOO_LONG", 0.5)
    app = app_on(two, tmp_path)

    @app.consumer(topic="orders", strategies=["unique_key"], name="points", in_flight=20)
    def count(order: dict, session: Session) -> None:
        give(session, order)

    plan = started(app)
    backlog, others = orders(0, 60, shard=1), orders(1000, 40, shard=0)
    with running(plan):
        publish(plan, orders(2000, 40))
        eventually(lambda: len(two.effects(0)) + len(two.effects(1)) == 40, "both shards")
        two.door.refuse()
        publish(plan, backlog + others)
        eventually(lambda: of(0, others) <= set(two.effects(0)), "the shard that answers", PROMPTLY)
        two.door.accept()
        eventually(lambda: of(1, backlog) <= set(two.effects(1)), "the shard that was away")
    applied = two.effects(0) + two.effects(1)
    assert sorted(applied) == sorted(order["id"] for order in backlog + others + orders(2000, 40))


def test_an_error_on_one_shard_is_not_disproved_by_another(two: Shards, tmp_path: Path) -> None:
    """A table that is missing on one shard burns no messages there, although the other one's are applied meanwhile."""
    app, tried = app_on(two, tmp_path), dict[str, int]()

    @app.consumer(
        topic="orders",
        strategies=["unique_key"],
        name="points",
        retry={"attempts": 3, "backoff": {"first": "10ms"}},
    )
    def count(order: dict, session: Session) -> None:
        tried[order["id"]] = tried.get(order["id"], 0) + 1
        session.execute(text("SELECT count(*) FROM effects"))
        give(session, order)

    Base.metadata.drop_all(two.engines[1])
    plan, sent, more = started(app), orders(0, 200), orders(200, 5, shard=0)
    heard = Heard()
    with running(plan, observers=[heard]) as run:
        publish(plan, sent)
        eventually(lambda: of(0, sent) <= set(two.effects(0)), "the shard that has its table", PROMPTLY)
        eventually(lambda: len(of(1, sent) & tried.keys()) > 2, "several tries")
        assert "shard 2 of 2" in run.state().consumers[0].detail
        for order in more:
            before = sum(tried[name] for name in of(1, sent) & tried.keys())
            publish(plan, [order])
            eventually(lambda order=order: order["id"] in two.effects(0), "an effect on the other shard")  # type: ignore[misc]
            eventually(
                lambda before=before: sum(tried[n] for n in of(1, sent) & tried.keys()) > before, "a try"
            )  # type: ignore[misc]
        assert len(heard.of("retried")) <= 2, "the first one shows that the next one fails alike"
        Base.metadata.create_all(two.engines[1])
        eventually(lambda: of(1, sent) <= set(two.effects(1)), "the shard that has it now")
        assert not list(plan.adapters["main"].dead_letters(plan.consumers[0].subscription, 10))
    assert sorted(two.effects(0) + two.effects(1)) == sorted(order["id"] for order in [*sent, *more])
