"""Units in parts: what fails after writing undoes its own part, and the rest of the unit stays and commits with it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Run
from oncemq.engine.crash.flight_recorder import Recorder, read_crash
from oncemq.errors import Reject
from oncemq.observe.events import RescueStep
from oncemq.testing.fake_clock import FakeClock
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, Name, effects, give
from support.failing import failing, losing_the_connection_at
from support.units import UnitBench, orders


@pytest.fixture(autouse=True)
def savepoint_every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo two items together, whatever the other tests of this folder do."""
    monkeypatch.setattr(UnitBench, "savepoint_every", 2)


class Calls:
    """A handler that gives, fails where it is told, and counts how often it was called."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def __call__(self, order: dict[str, Any], session: Session) -> None:
        """Give, and perhaps fail after that."""
        self.of[order["id"]] += 1
        give(session, order)
        if order.get("fail") == "reject":
            session.flush()
            raise Reject(order["id"])
        if order.get("fail") == "raise":
            session.flush()
            raise ValueError(order["id"])
        if order.get("fail") == "flush":
            session.add(Name(name="taken"))
        if order.get("fail") == "database":
            session.add(Name(name="taken"))
            session.commit()


@contextmanager
def commits(engine: Engine) -> Iterator[list[Connection]]:
    """Count the transactions that are committed."""
    seen: list[Connection] = []

    def listener(connection: Connection) -> None:
        seen.append(connection)

    event.listen(engine, "commit", listener)
    try:
        yield seen
    finally:
        event.remove(engine, "commit", listener)


@pytest.mark.parametrize("how", ["raise", "reject"])
def test_only_the_culprits_part_runs_again(engine: Engine, how: str) -> None:
    """Neighbours of the part run twice, everyone else once; all are committed together."""
    calls = Calls()
    bench = UnitBench(engine, calls, UniqueKey)
    a, b, c, d, e = orders("a", "b", "c", "d", "e")
    with commits(engine) as committed:
        outcomes = bench.run(a, b, c, failing(d, how), e)
    fate = "rejected" if how == "reject" else "retry"
    assert outcomes == ["applied", "applied", "applied", fate, "applied"]
    assert calls.of == {"a": 1, "b": 1, "c": 2, "d": 1, "e": 1}
    assert effects(engine) == ["a", "b", "c", "e"]
    assert (len(committed), bench.result.committed) == (1, 1)
    assert bench.result.steps == {RescueStep.SAVEPOINT: 1}


def test_what_comes_before_a_failure_of_its_key_goes_on_beside_a_second_failure(engine: Engine) -> None:
    """A message is not returned because a later one of its key, and another beside it, failed in its part."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    bench.savepoint_every = 3
    (c, *others) = orders("c", "d", "e")
    a, b = orders("a", "b", key="one")
    outcomes = bench.run(a, failing(b, "raise"), failing(c, "raise"), *others)
    assert outcomes == ["applied", "retry", "retry", "applied", "applied"]


@pytest.mark.parametrize("how", ["flush", "database"])
def test_an_unknown_culprit_is_found_within_its_part(engine: Engine, how: str) -> None:
    """A flush that may have failed for two items is tried again with a flush after each, in that part alone."""
    calls = Calls()
    bench = UnitBench(engine, calls, UniqueKey)
    a, b, c, d = orders("a", "b", "c", "d")
    assert bench.run(a, b, failing(c, how), d) == ["applied", "applied", "retry", "applied"]
    assert effects(engine) == ["a", "b", "d"]
    assert (calls.of["a"], calls.of["b"]) == (1, 1)
    assert list(bench.result.steps) == [RescueStep.SAVEPOINT]


def test_several_culprits_of_a_part(engine: Engine) -> None:
    """A part of which nothing is left is simply empty."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    a, b, c, d = orders("a", "b", "c", "d")
    assert bench.run(failing(a), failing(b), c, failing(d)) == ["retry", "retry", "applied", "retry"]
    assert effects(engine) == ["c"]


def test_a_failed_message_leaves_no_dedup_row(engine: Engine) -> None:
    """What was undone can run later; what stayed is a duplicate then."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    a, b, c, d = orders("a", "b", "c", "d")
    bench.run(a, failing(b), c, d)
    assert bench.run(a, b, c, d) == ["duplicate", "applied", "duplicate", "duplicate"]
    assert effects(engine) == ["a", "c", "d", "b"]


def test_successors_in_later_parts_wait_behind_a_retry(engine: Engine) -> None:
    """A key's later messages go back unstarted, also those of parts that had not begun."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    first, second, third = orders("1", "2", "3", key="k")
    outcomes = bench.run(failing(first), *orders("a", "b"), second, *orders("c"), third)
    assert outcomes == ["retry", "applied", "applied", "returned", "applied", "returned"]
    assert effects(engine) == ["a", "b", "c"]


def test_successors_in_later_parts_wait_behind_what_was_left_out(engine: Engine) -> None:
    """The same where the failure needed no roll-back, because nothing had been written."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "1":
            raise ValueError
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    first, second = orders("1", "2", key="k")
    assert bench.run(first, *orders("a", "b"), second) == ["retry", "applied", "applied", "returned"]
    assert effects(engine) == ["a", "b"]


def test_successors_go_on_after_a_reject(engine: Engine) -> None:
    """A message that is dead-lettered does not hold up its key."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    first, second, third = orders("1", "2", "3", key="k")
    outcomes = bench.run(failing(first, "reject"), *orders("a"), second, third)
    assert outcomes == ["rejected", "applied", "applied", "applied"]


def test_a_copy_in_a_later_part_is_a_duplicate(engine: Engine) -> None:
    """A part sees what the parts before it recorded."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    assert bench.run(*orders("a", "b"), *orders("c", "a")) == ["applied", "applied", "applied", "duplicate"]
    assert effects(engine) == ["a", "b", "c"]


def test_a_copy_of_what_was_undone_waits_for_it(engine: Engine) -> None:
    """A part does not see what a roll-back took away."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    first, copy = orders("a", "a", key="k")
    assert bench.run(failing(first), *orders("b", "c"), copy) == ["retry", "applied", "applied", "returned"]


def test_no_part_begins_after_the_deadline(engine: Engine) -> None:
    """When the unit's time is over, what has not begun goes back, whole parts included."""
    clock = FakeClock()

    def handler(order: dict[str, Any], session: Session) -> None:
        clock.advance(timedelta(seconds=1))
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey, clock=clock)
    outcomes = bench.run(*orders("a", "b", "c", "d", "e", "f"), seconds=2.5)
    assert outcomes == ["applied", "applied", "applied", "returned", "returned", "returned"]
    assert effects(engine) == ["a", "b", "c"]


def test_a_lost_transaction_is_tried_whole(engine: Engine) -> None:
    """Where the whole transaction is gone, everything runs again as one: nothing is half applied."""
    calls = Calls()

    def handler(order: dict[str, Any], session: Session) -> None:
        calls(order, session)
        if order["id"] == "d":
            session.connection().rollback()

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c", "d")) == ["applied", "applied", "applied", "retry"]
    assert effects(engine) == ["a", "b", "c"]
    assert calls.of["a"] > 1
    assert RescueStep.SAVEPOINT not in bench.result.steps


def test_a_handlers_own_savepoint_works(engine: Engine) -> None:
    """An error inside a savepoint of the handler's own is its own business, as everywhere."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        try:
            with session.begin_nested():
                session.add(Effect(order_id="undone", key="k"))
                session.flush()
                session.execute(TAKE_THE_TAKEN)
        except Exception:
            return

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "applied", "applied"]
    assert effects(engine) == ["a", "b", "c"]


def test_a_database_error_outside_of_it_is_noticed(engine: Engine) -> None:
    """The framework's own savepoint does not make a swallowed error harmless."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "b":
            try:
                session.execute(TAKE_THE_TAKEN)
            except Exception:
                return

    bench = UnitBench(engine, handler, UniqueKey)
    whole = engine.dialect.name == "postgresql"  # elsewhere an error undoes its statement only
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry" if whole else "applied", "applied"]
    assert effects(engine) == (["a", "c"] if whole else ["a", "b", "c"])


def test_the_recorder_names_the_part_that_runs(engine: Engine, tmp_path: Path) -> None:
    """Should the process die in a handler of the second part, that message is the suspect."""
    path, seen = tmp_path / "worker", []

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        crash = read_crash(path, "shop.points")
        seen.append(crash.suspects if crash is not None else ())

    bench = UnitBench(engine, handler, UniqueKey, recorder=Recorder(path))
    bench.run(*orders("a", "b", "c"))
    assert [[key for key, _ in suspects] for suspects in seen] == [["k-a"], ["k-b"], ["k-c"]]


def test_a_death_while_committing_has_all_under_suspicion(engine: Engine, tmp_path: Path) -> None:
    """Once all parts have run, the whole unit is suspected, and no one is charged."""
    path, said = tmp_path / "worker", {}

    def look(point: str) -> None:
        said[point] = read_crash(path, "shop.points")

    bench = UnitBench(engine, Calls(), UniqueKey, recorder=Recorder(path), point=look)
    bench.run(*orders("a", "b", "c"))
    crash = said["before-commit"]
    assert crash is not None
    assert ([key for key, _ in crash.suspects], crash.known) == (["k-a", "k-b", "k-c"], False)
    assert said["committed"] is None


class Confirming(Strategy):
    """Counts what is confirmed and committed, and how many savepoints are still open then."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bool]] = []

    def confirm(self, run: Run) -> None:
        """Note it."""
        self.seen.append(("confirm", len(run.items), run.connection.in_nested_transaction()))

    def committed(self, run: Run) -> None:
        """Note it."""
        self.seen.append(("committed", len(run.items), False))


def test_every_part_is_confirmed_at_the_end_of_the_whole(engine: Engine) -> None:
    """What must still hold just before the commit is asked then, for each part; after it each part is told."""
    confirming = Confirming()
    UnitBench(engine, Calls(), UniqueKey, confirming).run(*orders("a", "b", "c"))
    assert confirming.seen == [
        ("confirm", 2, False),
        ("confirm", 1, False),
        ("committed", 2, False),
        ("committed", 1, False),
    ]


class Parking(Strategy):
    """A strategy that parks, though nothing here."""

    traits: ClassVar[Traits] = Traits(decides=True)
    parks = True


def test_where_messages_are_parked_a_unit_is_one_run(engine: Engine) -> None:
    """What one part lets follow the next would not know of, so a failure undoes the unit."""
    calls = Calls()
    bench = UnitBench(engine, calls, UniqueKey, Parking())
    a, b, c, d = orders("a", "b", "c", "d")
    assert bench.run(a, b, c, failing(d)) == ["applied", "applied", "applied", "retry"]
    assert calls.of["a"] == 2


def test_a_failing_connection_charges_no_message(engine: Engine) -> None:
    """The database's trouble in a later part is no one's fault, and nothing of the earlier part is left."""
    bench = UnitBench(engine, losing_the_connection_at("c"), UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "applied", "applied"]
    assert effects(engine) == ["a", "b", "c"]
