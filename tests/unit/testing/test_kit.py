"""The test kit's own rules: databases that are given, time, and what a test gets wrong."""

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from oncemq import App, Publisher, Unpublishable
from oncemq.errors import RequestTimeout
from oncemq.testing import TestApp
from oncemq.testing.kit import stepped_process
from suites.kit.conftest import Base, Effect, effects

_OF_PRODUCTION = """
app: kit
brokers: {{main: {{url: "amqp://nowhere/"}}}}
database: {{url: "postgresql+psycopg://nowhere/shop"}}
ledger: {{generations: 1d}}
recycle: {{after_messages: 1}}
topics:
  orders:
    key: body.id
    strategies: [unique_key]
    claim_check: {{over: 1KiB, store: "file://{bodies}"}}
consumers:
  apply: {{topic: orders, handler: "handlers:apply"}}
"""


def _apply(body: dict[str, Any], session: Session) -> None:
    session.add(Effect(text=body["id"]))


def _app(handler: Callable[..., Any] = _apply, database: Any = "sqlite:///unused.db", **consumer: Any) -> App:
    app = App("kit", brokers={"main": "amqp://nowhere/"}, database=database)
    app.topic("orders", key="body.id", identity=["body.id"], strategies=["unique_key"])
    app.consumer(topic="orders", name="apply", **consumer)(handler)
    return app


@pytest.mark.server
@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_a_server_may_be_given_for_the_database(server: str, request: pytest.FixtureRequest) -> None:
    """Each test has a place of its own there, the ledger takes the test's clock, and nothing is left."""
    url = request.getfixturevalue(f"{server}_url")
    for _ in range(2):
        with TestApp(_app(), tables=Base.metadata, database=url) as app:
            outcome = app.publish("orders", {"id": "a"})
            assert outcome.applied
            app.clock.advance("30d")
            assert effects(app) == ["a"]


@pytest.mark.server
def test_parked_messages_are_due_by_the_tests_clock_on_a_server(postgresql_url: str) -> None:
    """The database's own clock has hardly moved."""
    app = App("kit", brokers={"main": "amqp://nowhere/"}, database="postgresql://nowhere/x")
    machine = {"sequence": {"order": "body.seq", "gap_timeout": "1h", "on_gap": "skip"}}
    app.topic("orders", key="body.id", strategies=[machine])
    app.consumer(topic="orders", name="apply")(_apply)
    with TestApp(app, tables=Base.metadata, database=postgresql_url) as kit:
        early = kit.publish("orders", {"id": "a", "seq": 2})
        assert early.parked
        kit.clock.advance("59m")
        assert early.parked
        kit.clock.advance("2m")
        assert early.applied


def test_what_belongs_to_production_is_left_there(tmp_path: Path) -> None:
    """Large bodies go into a folder of the test's own, and records into one table: SQLite has no generations."""
    file = tmp_path / "app.yaml"
    file.write_text(_OF_PRODUCTION.format(bodies=tmp_path / "bodies"))
    sys.modules["handlers"] = module = ModuleType("handlers")
    vars(module)["apply"] = _apply
    with TestApp(file, tables=Base.metadata) as app:
        outcome = app.publish("orders", {"id": "a", "more": "x" * 100_000})
        assert outcome.applied
        assert app.duplicate(outcome).duplicate
        assert app.redeliver(outcome).duplicate
    assert not (tmp_path / "bodies").exists()


def test_a_sharded_database_has_its_shards() -> None:
    """Each is a file of its own."""
    with TestApp(
        _app(database={"shards": ["sqlite:///a.db", "sqlite:///b.db"]}), tables=Base.metadata
    ) as app:
        assert all(outcome.applied for outcome in app.publish_many("orders", [{"id": n} for n in "abcdefgh"]))
        found = []
        for shard in range(2):
            with app.session(shard) as session:
                found.append(len(list(session.scalars(select(Effect.text)))))
        assert sum(found) == 8
        assert 0 not in found


def test_retries_run_each_at_its_own_time() -> None:
    """A long advance is no single jump."""
    seen: list[float] = []

    def fail(_: dict[str, Any]) -> None:
        seen.append(kit.clock.now().timestamp())
        raise ValueError

    backoff = {"first": "1m", "factor": 2, "max": "1h", "jitter": 0}
    app = _app(fail, effects="database", retry={"attempts": 4, "backoff": backoff})
    with TestApp(app) as kit:
        outcome = kit.publish("orders", {"id": "a"})
        kit.clock.advance(timedelta(hours=1))
    assert outcome.dead_letter
    pauses = [round(later - earlier) for earlier, later in pairwise(seen)]
    assert pauses == [60, 120, 240]


def test_everything_runs_in_the_tests_own_thread() -> None:
    """A debugger stops where the test is, and a fixture's patch is seen."""
    seen: set[threading.Thread] = set()

    def handle(_: dict[str, Any]) -> None:
        seen.add(threading.current_thread())

    async def handle_async(_: dict[str, Any]) -> None:
        seen.add(threading.current_thread())

    before = set(threading.enumerate())
    for handler in (handle, handle_async):
        with TestApp(_app(handler, effects="external", strategies=["none"])) as app:
            assert app.publish("orders", {"id": "a"}).applied
            assert set(threading.enumerate()) <= before
    assert seen == {threading.current_thread()}


def test_an_unknown_topic_is_an_error() -> None:
    """With the name that was perhaps meant."""
    with TestApp(_app()) as app, pytest.raises(Unpublishable, match="did you mean 'orders'"):
        app.publish("order", {})


def test_messages_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that publishes to its own topic for ever ends in words, not in a test that hangs."""
    monkeypatch.setattr(stepped_process, "_MOST_ROUNDS", 100)

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish("orders", {"id": body["id"] + 1})

    app = App("kit", brokers={"main": "amqp://nowhere/"})
    app.topic("orders", key="body.id", strategies=["none"])
    app.consumer(topic="orders", effects="external")(handle)
    with TestApp(app) as kit, pytest.raises(RuntimeError, match="still busy"):
        kit.publish("orders", {"id": 1})


def test_a_database_that_the_test_has_locked_is_no_hang() -> None:
    """A session with uncommitted rows makes the message wait, and the outcome says why."""
    with TestApp(_app(), tables=Base.metadata) as app:
        with app.session() as session:
            session.add(Effect(text="mine"))
            session.flush()
            outcome = app.publish("orders", {"id": "a"})
            assert outcome.waiting
            assert "locked" in outcome.reason
        app.clock.advance("1m")
        assert outcome.applied


def test_a_test_takes_a_few_milliseconds() -> None:
    """Of the processor, after the first one; 10 ms were measured."""
    seconds = []
    for _ in range(11):
        began = time.process_time()
        with TestApp(_app(), tables=Base.metadata) as app:
            assert app.publish("orders", {"id": "a"}).applied
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.05


@pytest.mark.parametrize("more", [{"delay": "1m"}, {"session": Session()}])
def test_a_publisher_in_memory_has_no_outbox(more: dict[str, Any]) -> None:
    """It is refused at once, with what can be done; otherwise it publishes as outside of handlers."""
    with TestApp(_app(), tables=Base.metadata) as app, app.publisher() as publisher:
        with pytest.raises(Unpublishable, match="has no outbox"):
            publisher.publish("orders", {"id": "a"}, **more)
        publisher.publish("orders", {"id": "b"})
        publisher.publish_many("orders", [{"id": "c"}, {"id": "d"}])
        app.clock.advance("1s")
        assert effects(app) == ["b", "c", "d"]


def test_a_request_on_a_broker_without_answers_is_refused() -> None:
    """As in production, although the broker in memory could."""
    app = App("kit", brokers={"main": "embedded:///unused.db"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity=["body.id"], strategies=["unique_key"])
    app.consumer(topic="orders", name="apply")(_apply)
    with TestApp(app, tables=Base.metadata) as kit, kit.publisher() as publisher:
        with pytest.raises(Unpublishable, match="carries no answers"):
            publisher.request("orders", {"id": "a"}, wait="5s")
        assert effects(kit) == []


def test_a_request_passes_the_time_of_the_test() -> None:
    """Without an answer its wait is over at once, by the test's clock."""
    with TestApp(_app(), tables=Base.metadata) as app, app.publisher() as publisher:
        before, started = app.clock.now(), time.monotonic()
        with pytest.raises(RequestTimeout):
            publisher.request("orders", {"id": "a"}, wait="1h")
        assert app.clock.now() - before == timedelta(hours=1)
        assert time.monotonic() - started < 60


def test_a_publisher_outlives_a_crash_of_the_app() -> None:
    """What is started again answers, with what the process before it has stored."""
    app = App("kit", brokers={"main": "amqp://nowhere/"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity=["body.id"], strategies=[{"unique_key": {"result": True}}])

    @app.consumer(topic="orders", reply=True)
    def apply(body: dict[str, Any], session: Session) -> str:
        _apply(body, session)
        return "applied"

    with TestApp(app, tables=Base.metadata) as kit, kit.publisher() as publisher:
        publisher.publish("orders", {"id": "b"})
        kit.crash_after_commit("orders", {"id": "a"})
        assert publisher.request("orders", {"id": "a"}, wait="5s") == "applied"
        assert sorted(effects(kit)) == ["a", "b"]


def test_a_handler_that_asks_its_own_consumer_has_no_answer() -> None:
    """It would run inside of itself; its wait ends, and the request is answered afterwards, to no one."""
    app = App("kit", brokers={"main": "amqp://nowhere/"}, database="sqlite:///unused.db")
    app.topic("asks", key="body.id", identity=["body.id"], strategies=["two_phase"])
    heard: list[type[Exception]] = []

    @app.consumer(topic="asks", effects="external")
    def ask(body: dict[str, Any]) -> None:
        if body["id"] == "a":
            with pytest.raises(RequestTimeout) as caught:
                publisher.request("asks", {"id": "b"}, wait="5s")
            heard.append(caught.type)

    with TestApp(app, tables=Base.metadata) as kit, kit.publisher() as publisher:
        assert kit.publish("asks", {"id": "a"}).applied
        assert heard == [RequestTimeout]
        (request,) = kit.published("asks")
        assert request.outcome.applied
