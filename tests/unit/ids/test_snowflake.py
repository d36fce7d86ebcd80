"""Snowflake ids are unique over processes, ascending, and refused where that cannot be promised."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sqlalchemy import Engine

from oncemq.errors import ClockSetBack, ConfigError, IdsUnavailable, WorkerNumberLost
from oncemq.ids import Snowflake
from oncemq.ids.layout import EPOCH, PER_MILLISECOND, TIME_SHIFT, WORKERS
from oncemq.ledger import schema
from oncemq.ledger.coordination import leases
from oncemq.ledger.database.engine import make_engine
from oncemq.testing.fake_clock import FakeClock

MILLISECOND = timedelta(milliseconds=1)


class SettableClock(FakeClock):
    """A clock that can be set, and that a pause advances."""

    set_by = timedelta(0)

    def now(self):
        """Return the time as it was set."""
        return super().now() + self.set_by

    def pause(self, seconds: float) -> None:
        """Let time pass instead of sleeping."""
        self.advance(timedelta(seconds=seconds))


@pytest.fixture
def clock() -> SettableClock:
    """A clock that is blocked unless told."""
    return SettableClock()


@pytest.fixture
def file_engine(sqlite_database: str) -> Iterator[Engine]:
    """An engine on SQLite with a ledger."""
    engine = make_engine(sqlite_database)
    schema.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def ids(file_engine: Engine, clock: SettableClock) -> Iterator[Snowflake]:
    """A maker of ids on the settable clock."""
    with made(file_engine, clock) as ids:
        yield ids


def made(engine: Engine, clock: SettableClock) -> Snowflake:
    """Return a maker of ids with a lease of 30 s."""
    return Snowflake(engine, clock=clock, pause=clock.pause)


def test_an_id_tells_when_and_by_whom_it_was_made(ids: Snowflake, clock: SettableClock) -> None:
    """Time, worker and sequence can be read from it; it fits a signed 64-bit column."""
    made_now = ids.batch(3)
    parts = [Snowflake.parts(number) for number in made_now]
    assert [(found.made_at, found.worker, found.sequence) for found in parts] == [
        (clock.now(), 0, sequence) for sequence in range(3)
    ]
    assert all(0 < number < 2**63 for number in made_now)
    with pytest.raises(ValueError, match="not a snowflake id"):
        Snowflake.parts(-1)


def test_two_makers_never_share_a_number(database_url: str) -> None:
    """Each has one of its own, on every database; a number that is given back is used again, later."""
    engine = make_engine(database_url)
    schema.create(engine)
    with Snowflake(engine) as first, Snowflake(engine) as second, Snowflake(engine, "other") as other:
        workers = [Snowflake.parts(maker.next()).worker for maker in (first, second, other)]
    deadline = time.monotonic() + 10
    with Snowflake(engine) as third:
        assert Snowflake.parts(third.next()).worker == 0
        assert time.monotonic() < deadline
    engine.dispose()
    assert workers == [0, 1, 0]


def test_a_full_millisecond_waits_for_the_next(ids: Snowflake) -> None:
    """No more than 4,096 ids have one time; the others follow in order."""
    numbers = ids.batch(3 * PER_MILLISECOND + 1)
    assert numbers == sorted(set(numbers))
    assert len({number >> TIME_SHIFT for number in numbers}) == 4


def test_a_clock_set_back_a_little_is_absorbed(ids: Snowflake, clock: SettableClock) -> None:
    """Up to 50 ms: ids go on ascending."""
    before = ids.batch(PER_MILLISECOND - 1)
    clock.set_by = -50 * MILLISECOND
    after = ids.batch(2)
    assert before[-1] < after[0] < after[1]


def test_a_clock_set_back_further_is_refused(ids: Snowflake, clock: SettableClock) -> None:
    """Beyond 50 ms the error says by how much; ids go on when the clock has caught up."""
    first = ids.next()
    clock.set_by = -51 * MILLISECOND
    with pytest.raises(ClockSetBack, match="51ms behind"):
        ids.next()
    clock.advance(MILLISECOND)
    assert ids.next() > first


def test_a_clock_set_back_before_the_first_id_is_noticed(file_engine: Engine, clock: SettableClock) -> None:
    """The lease began later than that, and the number may have been another's then."""
    with made(file_engine, clock) as ids:
        clock.set_by = -timedelta(seconds=1)
        with pytest.raises(ClockSetBack):
            ids.next()


def test_a_lease_that_ended_makes_no_more_ids(
    file_engine: Engine, ids: Snowflake, clock: SettableClock
) -> None:
    """Someone else may have the number; after a renewal ids go on, with another number if it was taken."""
    ids.next()
    clock.advance(timedelta(seconds=30))
    with pytest.raises(WorkerNumberLost, match="is the database there"):
        ids.next()
    clock.advance(MILLISECOND)
    with made(file_engine, clock) as successor:
        assert Snowflake.parts(successor.next()).worker == 0
        ids._worker.renew()
        assert Snowflake.parts(ids.next()).worker == 1


def test_the_background_renews(file_engine: Engine) -> None:
    """A maker outlives its first lease."""
    with Snowflake(file_engine, lease=timedelta(seconds=3)) as ids:
        first = ids._worker.held
        deadline = time.monotonic() + 20
        while ids._worker.held.until == first.until:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert ids._worker.held.number == first.number


def test_when_every_number_is_in_use_there_is_none(file_engine: Engine, clock: SettableClock) -> None:
    """The error says what can be done."""
    until = clock.now() + timedelta(minutes=1)
    rows = [{"name": f"ids ids {number:04d}", "owner": "x", "until": until} for number in range(WORKERS)]
    with file_engine.begin() as connection:
        connection.execute(leases.TABLE.insert(), rows)
    with pytest.raises(WorkerNumberLost, match="all 1024"):
        made(file_engine, clock)


def test_threads_share_one_maker(file_engine: Engine) -> None:
    """No id twice, no matter who asks."""
    with Snowflake(file_engine) as ids, ThreadPoolExecutor(8) as threads:
        numbers = [number for batch in threads.map(lambda _: ids.batch(500), range(80)) for number in batch]
    assert len(set(numbers)) == 40_000


def test_a_closed_maker_makes_none(file_engine: Engine) -> None:
    """Closing twice is no error."""
    ids = Snowflake(file_engine)
    ids.close()
    ids.close()
    with pytest.raises(IdsUnavailable, match="closed"):
        ids.next()


def test_a_fork_may_not_share_its_parents_number(ids: Snowflake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is told to make its own, and closing there gives nothing back."""
    parent = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(IdsUnavailable, match="before a fork"):
            ids.next()
        ids.close()
    assert ids.next()


@pytest.mark.parametrize(("name", "lease"), [("", 30), ("x" * 201, 30), ("ids", 2)])
def test_unsafe_values_are_refused(file_engine: Engine, name: str, lease: int) -> None:
    """A lease that cannot be renewed in time, and names that do not fit."""
    with pytest.raises(ConfigError):
        Snowflake(file_engine, name, lease=timedelta(seconds=lease))


def test_times_before_the_epoch_are_refused(file_engine: Engine) -> None:
    """A machine that thinks it is 1970 gets no negative ids."""
    clock = SettableClock(EPOCH - timedelta(days=1))
    with made(file_engine, clock) as ids, pytest.raises(IdsUnavailable, match="2024 to 2093"):
        ids.next()


def test_a_batch_of_a_million_takes_about_a_second(file_engine: Engine) -> None:
    """4,096 a millisecond are the limit of the format; the bound is wide, for busy machines."""
    with Snowflake(file_engine) as ids:
        began = time.perf_counter()
        numbers = ids.batch(1_000_000)
        took = time.perf_counter() - began
    assert len(set(numbers)) == 1_000_000
    assert took < 5


steps = some.lists(
    some.one_of(
        some.tuples(some.just("make"), some.integers(0, 2), some.integers(1, 5000)),
        some.tuples(some.just("pass"), some.just(0), some.integers(0, 40_000)),
        some.tuples(some.just("set"), some.integers(0, 2), some.integers(-40_000, 40_000)),
        some.tuples(some.just("die"), some.integers(0, 2), some.booleans()),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_no_two_makers_ever_make_one_id(steps, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Three machines with clocks of their own, set back and forth, that stop, die and start again: no id comes twice.

    Milliseconds pass, clocks are set, makers are closed (true) or vanish (false) and are made again.
    """
    folder: Path = tmp_path_factory.mktemp("ids")
    engine = make_engine(f"sqlite:///{folder / 'ids.db'}")
    schema.create(engine)
    clocks = [SettableClock() for _ in range(3)]
    makers = [made(engine, clock) for clock in clocks]
    everything = [makers[:]]
    seen: set[int] = set()
    for what, who, amount in steps:
        if what == "make":
            try:
                numbers = makers[who].batch(amount)
            except IdsUnavailable:
                continue
            assert seen.isdisjoint(numbers)
            assert all(earlier < other for earlier, other in pairwise(numbers))
            seen.update(numbers)
        elif what == "pass":
            for clock in clocks:
                clock.advance(amount * MILLISECOND)
        elif what == "set":
            clocks[who].set_by += amount * MILLISECOND
        else:
            if amount:
                makers[who].close()
            makers[who] = made(engine, clocks[who])
            everything.append([makers[who]])
    for maker in [maker for some_makers in everything for maker in some_makers]:
        maker.close()
    engine.dispose()
