"""Messages that killed a process, in a running app: tried alone, dead-lettered in the end, forgotten when they succeed."""

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq.contracts.checks import Effects
from oncemq.engine.crash.flight_recorder import Crash
from oncemq.engine.crash.suspects import SuspectBook
from oncemq.ledger.coordination import workers
from oncemq.ledger.records import suspects
from oncemq.message import headers
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.application import Run, adapter, engine, give, order, points, roster, until
from support.engine import make_app, make_consumer, running

__all__ = ["adapter", "engine"]


SCOPE = "shop.points"


# Crash suspects


@pytest.fixture(params=["ledger", "file"])
def book(request: pytest.FixtureRequest, tmp_path: Path, engine: Engine) -> tuple[Engine | None, SuspectBook]:
    """The book of an app with a database, and of one without; with the engine that its app has."""
    mine = engine if request.param == "ledger" else None
    if mine is not None:
        make_app(ScriptedAdapter(), mine)
    return mine, SuspectBook(mine, tmp_path)


def charged(book: SuspectBook, identity: str, times: int) -> None:
    """Note so many deaths of one message."""
    for _ in range(times):
        book.note(Crash(SCOPE, (("k", identity),), known=True))


def external(
    handler: Callable[..., Any], engine: Engine | None, adapter: ScriptedAdapter, state: Path
) -> Any:
    """Return an app whose handler needs no database."""
    return make_app(adapter, engine, make_consumer(handler, effects=Effects.EXTERNAL), state=state)


def test_three_deaths_bury_a_message_unrun(
    book: tuple[Engine | None, SuspectBook], adapter: ScriptedAdapter, tmp_path: Path
) -> None:
    """With all attempts used up by deaths the handler is not called again, and the message is forgotten."""
    engine, suspects_book = book
    charged(suspects_book, "1", 3)
    called: list[int] = []
    with running(external(lambda order: called.append(order["id"]), engine, adapter, tmp_path)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.dead) == 1)
    assert not called
    assert adapter.dead[0].headers[headers.REASON] == "crashed"
    assert suspects_book.load(SCOPE) == {}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_that_just_killed_another_process_is_not_tried_once_more(
    book: tuple[Engine | None, SuspectBook], adapter: ScriptedAdapter, tmp_path: Path, is_async: bool
) -> None:
    """It is delivered again before this process would have heard of its deaths by itself."""
    engine, suspects_book = book
    called: list[int] = []

    async def later(order: dict) -> None:
        called.append(order["id"])

    def now(order: dict) -> None:
        called.append(order["id"])

    with running(external(later if is_async else now, engine, adapter, tmp_path)):
        charged(suspects_book, "1", 3)
        adapter.deliver(order(1), redelivered=True)
        adapter.wait_until(lambda a: len(a.dead) == 1 or called)
    assert not called
    assert adapter.dead[0].headers[headers.REASON] == "crashed"


def test_a_suspect_that_succeeds_is_forgotten(
    book: tuple[Engine | None, SuspectBook], adapter: ScriptedAdapter, tmp_path: Path
) -> None:
    """Its crashes no longer count against the same identity."""
    engine, suspects_book = book
    charged(suspects_book, "1", 2)
    with running(external(lambda order: None, engine, adapter, tmp_path)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert suspects_book.load(SCOPE) == {}


def test_a_suspect_that_is_retried_stays_one(
    book: tuple[Engine | None, SuspectBook], adapter: ScriptedAdapter, tmp_path: Path
) -> None:
    """Its crashes still count as attempts at the next try."""
    engine, suspects_book = book
    charged(suspects_book, "1", 1)
    with running(external(lambda order: 1 / 0, engine, adapter, tmp_path)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.retried) == 1)
    assert suspects_book.load(SCOPE) == {"1": 1}


def test_a_buried_suspect_is_forgotten(
    book: tuple[Engine | None, SuspectBook], adapter: ScriptedAdapter, tmp_path: Path
) -> None:
    """Attempts exhausted by deaths and a failure: anyone who replays the dead letter starts again."""
    engine, suspects_book = book
    charged(suspects_book, "1", 2)
    with running(external(lambda order: 1 / 0, engine, adapter, tmp_path)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.dead) == 1)
    assert suspects_book.load(SCOPE) == {}


def test_a_suspect_whose_burial_fails_is_remembered(
    adapter: ScriptedAdapter, tmp_path: Path, engine: Engine
) -> None:
    """As long as the dead letter is not safe the message may come again, and must not kill again."""
    make_app(adapter, engine)
    book = SuspectBook(engine, tmp_path)
    charged(book, "1", 3)
    adapter.fail_next("dead_letter", times=100_000)
    plan = make_app(adapter, engine, make_consumer(give), state=tmp_path, grace=timedelta(milliseconds=100))
    run = Run(plan).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    run.heard.wait_for("settle_failed")
    run.app.stop()
    run.end()
    assert book.load(SCOPE) == {"1": 3}


def test_suspects_run_alone_in_the_process(adapter: ScriptedAdapter, tmp_path: Path) -> None:
    """Two suspects, sync and async, are never in their handlers at the same time."""
    book, now, most = SuspectBook(None, tmp_path), 0, 0
    mutex = threading.Lock()
    for consumer in ("one", "two"):
        book.note(Crash(f"shop.{consumer}", tuple(("k", str(n)) for n in range(4)), known=False))

    def work() -> None:
        nonlocal now, most
        with mutex:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.02)
        with mutex:
            now -= 1

    def handle(order: dict) -> None:
        work()

    async def handle_async(order: dict) -> None:
        work()

    consumers = [
        make_consumer(handle, name="one", effects=Effects.EXTERNAL, workers=4),
        make_consumer(handle_async, name="two", effects=Effects.EXTERNAL, workers=4),
    ]
    with running(make_app(adapter, None, *consumers, state=tmp_path)):
        for number in range(4):
            adapter.deliver(order(number), consumer="one")
            adapter.deliver(order(number), consumer="two")
        adapter.wait_until(lambda a: len(a.acknowledged) == 8)
    assert most == 1


def test_suspects_are_learnt_from_other_processes(
    adapter: ScriptedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """A death that another process noted counts here within a moment."""
    plan = make_app(adapter, engine, make_consumer(give), state=tmp_path)
    with running(plan) as app:
        with engine.begin() as connection:
            suspects.charge(connection, SCOPE, "k1", "1", crashes=3)
        until(lambda: "1" in app._crews["points"].consumer.intake.suspects)
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.dead) == 1)
    assert points(engine) == []


def vanished(engine: Engine, host: str, *, ago: timedelta) -> None:
    """Leave the row of a process that never said goodbye."""
    then = datetime.now(UTC) - ago
    with engine.begin() as connection:
        workers.started(connection, "shop", f"{host}-1", host, 1, then)


def test_a_running_process_is_on_the_roster(adapter: ScriptedAdapter, engine: Engine) -> None:
    """It signs on, and off at its end."""
    with running(make_app(adapter, engine, make_consumer(give))):
        assert roster(engine) == [socket.gethostname()]
    assert roster(engine) == []


@pytest.mark.parametrize(
    ("host", "ago", "distrusted"),
    [
        ("gone-machine", timedelta(minutes=5), True),
        ("gone-machine", timedelta(seconds=5), False),
        (socket.gethostname(), timedelta(seconds=70), False),
        (socket.gethostname(), timedelta(days=4000), True),
    ],
)
def test_what_a_lost_machine_may_have_died_of_runs_alone(
    host: str, ago: timedelta, distrusted: bool, adapter: ScriptedAdapter, engine: Engine
) -> None:
    """Another machine that fell silent, or this one before its boot, casts suspicion on everything published before."""
    plan = make_app(adapter, engine, make_consumer(give))
    vanished(engine, host, ago=ago)
    with running(plan):
        old = adapter.deliver(order(1), published_at=datetime.now(UTC) - timedelta(minutes=1))
        new = adapter.deliver(order(2), published_at=datetime.now(UTC) + timedelta(minutes=1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 2)
    assert (old.suspect, new.suspect) == (distrusted, False)


def test_every_process_that_starts_sees_what_a_lost_machine_left(engine: Engine) -> None:
    """Two processes of one app are started one after the other: both distrust, and after a clean end no one does."""
    make_app(ScriptedAdapter(), engine)
    vanished(engine, "gone-machine", ago=timedelta(minutes=5))
    first, second, third = ScriptedAdapter(), ScriptedAdapter(), ScriptedAdapter()
    then = datetime.now(UTC) - timedelta(minutes=1)
    with (
        running(make_app(first, engine, make_consumer(give))),
        running(make_app(second, engine, make_consumer(give))),
    ):
        assert first.deliver(order(1), published_at=then).suspect
        assert second.deliver(order(2), published_at=then).suspect
        first.wait_until(lambda a: len(a.acknowledged) == 1)
        second.wait_until(lambda a: len(a.acknowledged) == 1)
    with running(make_app(third, engine, make_consumer(give))):
        assert not third.deliver(order(3), published_at=then).suspect
        third.wait_until(lambda a: len(a.acknowledged) == 1)
