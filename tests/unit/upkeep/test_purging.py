"""The background task that purges, on each kind of database."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, insert, select

from oncemq.ledger.purge import BATCH, HISTORY, PROCESSED, Aged, came_since
from oncemq.ledger.records import processed
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep import purging
from oncemq.upkeep.pace import GENTLE
from oncemq.upkeep.purging import Purger

KEEP = timedelta(days=7)


def fill(engine: Engine, clock: FakeClock, consumer: str, count: int, age: timedelta) -> None:
    """Insert rows of one age."""
    at = clock.now() - age
    row = {"consumer": consumer, "key": "k", "processed_at": at}
    rows = [{**row, "identity": f"{clock.monotonic()}-{age}-{number}"} for number in range(count)]
    with engine.begin() as connection:
        connection.execute(insert(processed.TABLE), rows)


def left(engine: Engine) -> int:
    """Return how many rows there are."""
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(processed.TABLE)).scalar_one()


def test_a_step_deletes_one_batch_and_says_whether_there_is_more(engine: Engine, clock: FakeClock) -> None:
    """Until nothing old is left; what is young stays."""
    fill(engine, clock, "shop.points", 2 * BATCH + 1, KEEP * 2)
    fill(engine, clock, "shop.points", 3, KEEP / 2)
    purger = Purger((PROCESSED, HISTORY), "shop.points", KEEP, clock)
    assert [purger(engine) for _ in range(4)] == [True, True, False, False]
    assert left(engine) == 3


@pytest.fixture
def asked(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tables that were asked, which grow; each look takes six seconds."""
    names: list[str] = []
    purge = purging.purge

    def noted(engine: Engine, aged: Aged, *given: Any, **named: Any) -> int:
        names.append(aged.table.name)
        clock.advance(timedelta(seconds=6))
        return purge(engine, aged, *given, **named)

    monkeypatch.setattr(purging, "purge", noted)
    return names


def test_only_tables_that_have_more_are_asked_again(
    engine: Engine, clock: FakeClock, asked: list[str]
) -> None:
    """Empty ones cost one look each time that the task is due, and none in the batches after it."""
    fill(engine, clock, "shop.points", BATCH + 1, KEEP * 2)
    purger = Purger((PROCESSED, HISTORY), "shop.points", KEEP, clock)
    while purger(engine):
        pass
    purger(engine)
    names = ["oncemq_processed", "oncemq_history"]
    assert asked == [*names, "oncemq_processed", *names]


def test_others_are_asked_again_after_some_seconds(
    engine: Engine, clock: FakeClock, asked: list[str]
) -> None:
    """A backlog of one table takes hours, in which rows of the others grow old."""
    fill(engine, clock, "shop.points", 4 * BATCH, KEEP * 2)
    purger = Purger((PROCESSED, HISTORY), "shop.points", KEEP, clock)
    assert [purger(engine) for _ in range(4)] == [True] * 4
    names = ["oncemq_processed", "oncemq_history"]
    assert asked == [*names, "oncemq_processed", "oncemq_processed", *names]


@pytest.mark.parametrize(("coming", "rest"), [(900, GENTLE), (1100, GENTLE / 2)], ids=["few", "many"])
def test_it_rests_less_when_too_many_come(engine: Engine, clock: FakeClock, coming: int, rest: float) -> None:
    """Rows of this consumer that came since the last look are counted, those of others and older ones are not."""
    fill(engine, clock, "shop.points", 3 * BATCH, KEEP * 2)
    fill(engine, clock, "shop.points", BATCH, timedelta(minutes=5))
    purger = Purger((PROCESSED,), "shop.points", KEEP, clock)
    assert (purger(engine), purger.rest()) == (True, GENTLE)
    clock.advance(timedelta(seconds=11))
    fill(engine, clock, "shop.points", coming, timedelta(seconds=1))
    fill(engine, clock, "shop.others", 2 * BATCH, timedelta(seconds=1))
    # 2,000 have gone since it began: twice as many as came, or not.
    assert (purger(engine), purger.rest()) == (True, rest)


def test_what_came_is_not_counted_further_than_needed(engine: Engine, clock: FakeClock) -> None:
    """A look costs no more than the batches it judges."""
    fill(engine, clock, "shop.points", 30, timedelta(seconds=1))
    since = clock.now() - timedelta(seconds=5)
    assert came_since(engine, PROCESSED, since, 100, scope="shop.points") == 30
    assert came_since(engine, PROCESSED, since, 10, scope="shop.points") == 10
    assert came_since(engine, PROCESSED, since, 100, scope="shop.others") == 0
    assert came_since(engine, PROCESSED, clock.now(), 100) == 0


@pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.server)], indirect=True
)
def test_a_purge_does_not_wait_for_the_disk(engine: Engine, clock: FakeClock) -> None:
    """What a crash brings back is purged again; and the next transaction is as durable as before."""
    fill(engine, clock, "shop.points", 5, KEEP * 2)
    settings: list[str] = []

    def look(connection, *_: object) -> None:
        with connection.connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            settings.append(cursor.fetchone()[0])

    event.listen(engine, "commit", look)
    Purger((PROCESSED,), "shop.points", KEEP, clock)(engine)
    fill(engine, clock, "shop.points", 1, KEEP)
    assert settings == ["off", "on"]
