"""An open breaker acts: it logs, limits the rate of its process, or pauses its consumer in all processes."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.common.clock import SystemClock
from oncemq.contracts.verdict import Outcome
from oncemq.engine import ordered_pauses
from oncemq.engine.application import Application
from oncemq.engine.breakers.control import BreakerControl
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.engine.rates.rate_limit import RateLimit
from oncemq.ledger import schema
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import BREAKER, OPERATOR, Pause
from oncemq.ledger.database.engine import make_engine
from oncemq.observe.observers import Observers
from oncemq.observe.state import PauseReason
from oncemq.operate import pausing
from oncemq.operate.auditing import Operator
from oncemq.testing.fake_clock import FakeClock
from support.apps.program import eventually
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from unit.engine.test_on_embedded import broker, publish


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database of each kind with a ledger."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


class Crew:
    """A consumer that remembers its limit."""

    limit: RateLimit | None = None

    def limit_rate(self, limit: RateLimit | None) -> None:
        """Remember it."""
        self.limit = limit


class Bench:
    """The control of consumer `points` with a breaker for failures."""

    def __init__(self, engine: Engine | None, action: BreakerAction, **fields: Any) -> None:
        self.clock = FakeClock(datetime.now(UTC))
        rule = BreakerRule(BreakerKind.FAILURES, 0.5, minimum=10, action=action, **fields)
        self.recorder = BreakerRecorder({"points": [rule]}, self.clock)
        self.heard, self.crew = Heard(), Crew()
        scopes = {"points": "shop.points"}
        self.control = BreakerControl(
            self.recorder, engine, self.clock, scopes, {"points": self.crew}, Observers([self.heard])
        )

    def fail(self, messages: int = 10) -> bool:
        """Let messages fail, and look."""
        self.recorder.unit_done("points", {Outcome.RETRY: messages}, size=messages, seconds=0.1)
        return self.control.look()


def in_force(engine: Engine) -> tuple[Pause, ...]:
    """Return the pauses of the consumer."""
    with engine.connect() as connection:
        return pauses.of(connection, ["shop.points"]).get("shop.points", ())


@pytest.mark.parametrize("action", BreakerAction)
def test_each_opening_is_told(action: BreakerAction) -> None:
    """With what was found, and for how long."""
    bench = Bench(None, action)
    bench.fail()
    (told,) = bench.heard.of("breaker_changed")
    assert told.arguments == ("points", "failures", "open")
    assert told.fields == {
        "action": action.value,
        "share": 1.0,
        "above": 0.5,
        "messages": 10,
        "key": "",
        "next_in": timedelta(seconds=30),
    }


def test_a_warning_one_changes_nothing(engine: Engine) -> None:
    """It acts only if asked."""
    bench = Bench(engine, BreakerAction.WARN)
    assert not bench.fail()
    assert (bench.crew.limit, in_force(engine)) == (None, ())


def test_a_slowing_one_limits_its_process_only(engine: Engine) -> None:
    """Until it is closed again."""
    bench = Bench(engine, BreakerAction.SLOW)
    assert not bench.fail()
    assert bench.crew.limit is not None
    assert in_force(engine) == ()
    bench.clock.advance(timedelta(seconds=30))
    bench.control.look()
    bench.recorder.unit_done("points", {Outcome.PROCEED: 10}, size=10, seconds=0.1)
    bench.control.look()
    assert bench.crew.limit is None


def test_a_pausing_one_says_why_and_until_when(engine: Engine) -> None:
    """In the ledger, which all processes read."""
    bench = Bench(engine, BreakerAction.PAUSE)
    assert bench.fail()
    (pause,) = in_force(engine)
    assert (pause.kind, pause.who) == (BREAKER, "failures")
    assert pause.why == "100% of 10 messages failed, more than 50%"
    assert pause.until is not None
    assert abs((pause.until - pause.since).total_seconds() - 30) < 1
    assert re.fullmatch(
        r"by breaker failures since \S+Z until \S+Z: 100% of 10 messages failed, .*", str(pause)
    )


def test_a_longer_pause_of_another_process_is_not_shortened(engine: Engine) -> None:
    """Each process has its own breaker."""
    Bench(engine, BreakerAction.PAUSE, open_for=timedelta(hours=1)).fail()
    Bench(engine, BreakerAction.PAUSE).fail()
    (pause,) = in_force(engine)
    assert pause.until is not None
    assert pause.until - pause.since > timedelta(minutes=59)


def test_a_pause_that_has_ended_is_not_its_beginning(engine: Engine) -> None:
    """The next one has a time of its own."""
    past = datetime.now(UTC) - timedelta(hours=2)
    with engine.begin() as connection:
        pauses.begin(connection, Pause("shop.points", BREAKER, "x", "", past, past + timedelta(hours=1)))
    Bench(engine, BreakerAction.PAUSE).fail()
    (pause,) = in_force(engine)
    assert pause.since > past + timedelta(hours=1)


def test_an_operators_pause_stays(engine: Engine) -> None:
    """A breaker neither changes nor ends it."""
    with engine.begin() as connection:
        pauses.begin(connection, Pause("shop.points", OPERATOR, "alice", "why", datetime.now(UTC)))
    Bench(engine, BreakerAction.PAUSE).fail()
    assert [each.kind for each in in_force(engine)] == [OPERATOR, BREAKER]


def test_a_database_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look does not raise, since other things depend on it."""
    engine = make_engine("sqlite://")

    def away(*_: object) -> None:
        raise OperationalError("INSERT", {}, OSError("gone"))

    monkeypatch.setattr(pauses, "begin_or_lengthen", away)
    bench = Bench(engine, BreakerAction.PAUSE)
    assert not bench.fail()
    assert bench.heard.of("failed")[0].arguments[0] == "pausing points in all processes"


class Shop:
    """An app on the embedded broker; its handler fails while it is told to."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder, self.engine, self.broken = folder, engine, True
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE points (id INTEGER, attempt INTEGER)"))
        self.plan()  # creates the ledger

    def handle(self, order: dict, session: Session) -> None:
        """Insert a row, or fail."""
        if self.broken:
            raise ValueError("the new release is wrong")
        session.execute(text("INSERT INTO points (id) VALUES (:id)"), {"id": order["id"]})

    def plan(self) -> Any:
        """Return a new process's plan."""
        rule = BreakerRule(
            BreakerKind.FAILURES,
            0.5,
            minimum=4,
            action=BreakerAction.PAUSE,
            open_for=timedelta(seconds=3),
        )
        consumer = make_consumer(self.handle, breakers=(rule,))
        counts = BreakerRecorder({"points": [rule]}, SystemClock())
        return make_app(broker(self.folder), self.engine, consumer, breakers=counts)

    def effects(self) -> list[int]:
        """Return the ids of applied messages."""
        with self.engine.connect() as connection:
            return sorted(connection.execute(text("SELECT id FROM points")).scalars())


@pytest.fixture
def shop(tmp_path: Path, postgresql_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """An app whose processes read the ledger at each look."""
    monkeypatch.setattr(ordered_pauses, "READ_EVERY", 0.0)
    engine = make_engine(postgresql_database)
    yield Shop(tmp_path, engine)
    engine.dispose()


def until(found: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    eventually(found, what, timeout=30.0)


def paused(app: Application) -> PauseReason | None:
    """Return why the only consumer is paused."""
    (row,) = app.state().consumers
    return row.paused


def breakers(app: Application) -> list[tuple[str, str]]:
    """Return kind and phase of the only consumer's breakers."""
    (row,) = app.state().consumers
    return [(each.kind, each.phase) for each in row.breakers]


def test_failures_pause_the_consumer_in_all_processes_until_they_are_over(shop: Shop) -> None:
    """Then all is applied, once, and the breaker is closed."""
    heard, elsewhere = Heard(), Heard()
    plan, other = shop.plan(), shop.plan()
    with (
        running(plan, observers=[*plan.observers, heard]) as app,
        running(other, observers=[*other.observers, elsewhere]),
    ):
        publish(shop.folder, *range(1, 9))
        until(
            lambda: paused(app) is PauseReason.BREAKER and breakers(app) == [("failures", "open")], "a pause"
        )
        [told] = elsewhere.wait_for("consumer_paused", timeout=30.0)
        assert told.arguments[1] is PauseReason.BREAKER
        assert shop.effects() == []
        shop.broken = False
        publish(shop.folder, *range(9, 40))
        until(lambda: paused(app) is None, "the end of the pause")
        until(lambda: set(range(9, 40)) <= set(shop.effects()), "all effects")
    found = shop.effects()
    assert len(found) == len(set(found))
    assert [told.arguments[2] for told in heard.of("breaker_changed")][:2] == ["open", "half-open"]


def test_an_operator_does_not_end_a_breakers_pause(shop: Shop) -> None:
    """`oncemq resume` ends the operator's own."""
    plan = shop.plan()
    with shop.engine.begin() as connection:
        now = datetime.now(UTC)
        pause = Pause("shop.points", BREAKER, "failures", "", now, now + timedelta(hours=1))
        pauses.begin_or_lengthen(connection, pause)
    pausing.pause(plan, plan.consumers, Operator("alice@desk"))
    assert pausing.resume(plan, plan.consumers, Operator("alice@desk")) == ["points"]
    assert [each.kind for each in in_force(shop.engine)] == [BREAKER]
