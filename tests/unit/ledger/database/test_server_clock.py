"""One clock, the database's: what a process with a wrong clock writes, deletes and takes over."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event, func, select

from oncemq.common.clock import SystemClock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.contracts.verdict import Outcome
from oncemq.ledger.coordination import leases
from oncemq.ledger.database.server_clock import LedgerClock, server_moment, server_time
from oncemq.ledger.messages import outbox, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.ledger.purge import CLAIMS, HISTORY, PROCESSED, SUSPECTS
from oncemq.ledger.records import processed
from oncemq.ledger.records.claims import Claims, NewClaim
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.strategy_suite import ChainSpec
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.upkeep.purging import Purger
from oncemq.upkeep.runner import Upkeep
from support.database.ledgers import ledger_engine

AHEAD, BEHIND = timedelta(days=30), timedelta(days=-8)
KEEP = timedelta(days=7)
NEAR = timedelta(seconds=30)


class SkewedClock(SystemClock):
    """The clock of a machine that was set wrong."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        """Return the wrong time."""
        return super().now() + self.ahead


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine with a fresh ledger, once for each kind of database, on sessions far from UTC."""
    with ledger_engine(database_url) as engine:
        abroad = {"postgresql": "SET TIME ZONE 'Asia/Tokyo'", "mysql": "SET time_zone = '+09:00'"}
        if engine.dialect.name in abroad:
            event.listen(engine, "connect", lambda raw, _: raw.cursor().execute(abroad[engine.dialect.name]))
            engine.dispose()
        yield engine


@pytest.fixture
def bench(database_url: str, engine: Engine, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Lend a consumer whose process has the clock that the test's parameter says."""
    clock = LedgerClock(SkewedClock(getattr(request, "param", timedelta(0))), engine)
    clock.measure(engine)
    bench = Bench(database_url, ChainSpec([("unique_key", {})]), "shop.points", clock=clock)
    yield bench
    bench.close()


@pytest.mark.parametrize("ahead", [AHEAD, BEHIND, timedelta(0)], ids=str)
def test_a_wrong_clock_is_measured_and_set_right(engine: Engine, ahead: timedelta) -> None:
    """The difference is known to the second, in any time zone; what the clock tells is the database's time."""
    clock = LedgerClock(SkewedClock(ahead), engine)
    assert abs(clock.measure(engine) - ahead) < NEAR
    assert abs(clock.now() - datetime.now(UTC)) < NEAR
    assert clock.untrusted(engine) is (ahead != timedelta(0))
    with engine.connect() as connection:
        assert abs(server_time(connection) - datetime.now(UTC)) < NEAR
        ago = connection.execute(select(server_moment(engine.dialect, KEEP))).scalar_one()
        assert abs(datetime.now(UTC) - KEEP - ago) < NEAR


def test_a_process_that_is_ahead_purges_nothing_young(engine: Engine, bench: Bench) -> None:
    """Even one that never measured its clock: 100 effects stay 100 when their messages come again."""
    messages = [message(f"k{number}", 1) for number in range(100)]
    assert bench.deliver(*messages) == [Outcome.PROCEED] * 100
    purger = Purger((PROCESSED, CLAIMS, HISTORY, SUSPECTS), "shop.points", KEEP, SkewedClock(AHEAD))
    while purger(engine):
        pass
    assert bench.deliver(*messages) == [Outcome.DUPLICATE] * 100
    assert len(bench.effects()) == 100


@pytest.mark.parametrize("bench", [BEHIND], indirect=True, ids=str)
def test_a_process_that_is_behind_writes_records_that_live_as_long_as_any(
    engine: Engine, bench: Bench
) -> None:
    """Its clock is eight days late, records are kept for seven, and others with a true clock purge none of them."""
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    Purger((PROCESSED,), "shop.points", KEEP, SystemClock())(engine)
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(processed.TABLE)).scalar_one() == 1


def test_a_process_that_is_ahead_takes_no_lease_that_is_held(engine: Engine) -> None:
    """Neither that of a background task nor that of a claim."""
    now, later = datetime.now(UTC), datetime.now(UTC) + AHEAD
    lease = timedelta(minutes=2)
    claims = Claims("shop.mail")
    with engine.begin() as connection:
        assert leases.acquire(connection, "purge", "one", now=now, until=now + lease)
        assert not leases.acquire(connection, "purge", "two", now=later, until=later + lease)
        claims.take(connection, [NewClaim("id", "key", "one", "{}")], now + lease)
        assert claims.stuck(connection, later, after="", limit=9, everything=True) == []
        held = claims.read(connection, ["id"])["id"]
        assert not claims.take_over(connection, held, "two", later + lease)


def test_a_process_that_is_ahead_takes_nothing_that_another_holds(engine: Engine) -> None:
    """Neither what another one is about to send, nor a parked message that it works on, nor one whose pause lasts."""
    now, later = datetime.now(UTC), datetime.now(UTC) + AHEAD
    held = now + timedelta(seconds=20)
    parked = Parked(0, "a", "a:1", None, False, Message("orders", b"{}"), "early", now, held)
    with engine.begin() as connection:
        sent = [("paid", OutgoingMessage(b"{}", key="a", message_id="1"))]
        outbox.add(connection, outbox.Claim("shop", "one", held), "shop.points", sent, now)
        parking.add(connection, "shop.points", [parked])
        assert not outbox.any_due(connection, "shop", later)
        assert outbox.take_over(connection, outbox.Claim("shop", "two", later), later, 9) == []
        assert parking.due(connection, "shop.points", later, 9) == []


@pytest.mark.parametrize(("ahead", "expected"), [(AHEAD, ["sweep"]), (timedelta(0), ["purge", "sweep"])])
def test_a_process_far_from_the_database_leaves_shared_work_to_others(
    engine: Engine, ahead: timedelta, expected: list[str]
) -> None:
    """It goes on with what every process does for itself."""
    done: list[str] = []
    tasks = [
        UpkeepTask(name, timedelta(minutes=1), lambda _, name=name: bool(done.append(name)), everywhere=own)  # type: ignore[misc]
        for name, own in (("purge", False), ("sweep", True))
    ]
    Upkeep(engine, tasks, LedgerClock(SkewedClock(ahead), engine)).run_due()
    assert sorted(done) == expected
