"""A rotation lets no duplicate through: units before, during and after it, processes without the option, and stale lists."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from oncemq.errors import InfrastructureError
from oncemq.ledger.generations import registry, rotation
from oncemq.ledger.generations.bulk import GenerationBulk
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for
from oncemq.retry.classify import Fault, classify
from support.patience import PATIENCE

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AT_ONCE = timedelta(0)
LONG = timedelta(seconds=30 * PATIENCE)
SCOPE = 'shop.it\'s 100% "mine"'
SHAPE = Shape(
    processed.TABLE,
    "identity",
    "processed_at",
    inserted=("key",),
    updated=("fingerprint", "result"),
    read=("fingerprint", "result"),
)


class Lists:
    """A clock that a test advances, so that lists become old."""

    now = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


@pytest.fixture
def begun(ledger: Engine) -> Engine:
    """A ledger in which the consumer has its first generation."""
    assert rotation.begin(ledger, SCOPE)
    return ledger


@pytest.fixture
def bulk() -> GenerationBulk:
    """The statements of one process, which reads its list again only when told to."""
    return GenerationBulk(SHAPE, Lists())


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Threads for what waits."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def put(bulk: GenerationBulk, connection: Connection, *identities: str) -> set[str]:
    """Insert identities; returns those that were new."""
    return bulk.insert_new(connection, SCOPE, [(identity, "key") for identity in sorted(identities)], NOW)


def blocked(engine: Engine, count: int = 1) -> None:
    """Wait until so many connections of the database wait for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    until = time.monotonic() + 30 * PATIENCE
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.scalar(waiting) < count:
            assert time.monotonic() < until, "nothing waits"


def copies(engine: Engine, identity: str) -> int:
    """Return how many generations have the identity."""
    with engine.connect() as connection:
        return sum(
            connection.scalar(
                text(f"SELECT count(*) FROM {generation.table} WHERE identity = :identity"),
                {"identity": identity},
            )
            for generation in registry.generations_of(connection, SCOPE, retired=True)
        )


def test_what_is_in_an_older_generation_is_no_longer_new(begun: Engine, bulk: GenerationBulk) -> None:
    """Identities of every live generation are found, whatever bytes they have, and new ones go to the open one."""
    odd = ["a\\b", "ä\\303", "a ", "A", "it's :one %s", "x" * 512]
    with begun.begin() as connection:
        assert put(bulk, connection, *odd) == set(odd)
    for number in range(3):
        assert rotation.rotate(begun, SCOPE, AT_ONCE)
        with begun.begin() as connection:
            assert put(bulk, connection, *odd, f"new {number}") == {f"new {number}"}
    assert [copies(begun, identity) for identity in odd] == [1] * len(odd)


def test_a_rotation_waits_for_units_that_have_inserted(
    begun: Engine, bulk: GenerationBulk, aside: ThreadPoolExecutor
) -> None:
    """What a running unit has inserted is committed before the next generation is open; then its copy is a duplicate."""
    other = GenerationBulk(SHAPE, Lists())
    with begun.begin() as running:
        assert put(bulk, running, "a") == {"a"}
        turning = aside.submit(rotation.rotate, begun, SCOPE, AT_ONCE, wait=LONG)
        blocked(begun)
        assert not turning.done()
    assert turning.result() is True
    with begun.begin() as connection:
        assert put(other, connection, "a", "b") == {"b"}
    assert copies(begun, "a") == 1


def test_a_unit_that_comes_during_a_rotation_inserts_into_the_next_generation(
    begun: Engine, bulk: GenerationBulk, aside: ThreadPoolExecutor
) -> None:
    """Its statement waits for the rotation, sees that the generation is sealed, and is asked again with the new list."""
    with begun.begin() as connection:
        assert put(bulk, connection, "before") == {"before"}
    coming: list[Future[set[str]]] = []

    def unit() -> set[str]:
        with begun.begin() as connection:
            return put(bulk, connection, "a", "before")

    def point(step: str) -> None:
        if step == "barrier":
            coming.append(aside.submit(unit))
            blocked(begun)

    assert rotation.rotate(begun, SCOPE, AT_ONCE, done=point)
    assert coming[0].result() == {"a"}
    with begun.connect() as connection:
        newest = registry.generations_of(connection, SCOPE)[0].table
        assert connection.scalars(text(f"SELECT identity FROM {newest}")).all() == ["a"]


def test_copies_in_processes_with_old_and_new_lists_take_effect_once(
    begun: Engine, bulk: GenerationBulk
) -> None:
    """A process whose list is from before several rotations inserts nothing into a sealed generation."""
    with begun.begin() as connection:
        put(bulk, connection, "first")
    fresh = GenerationBulk(SHAPE, Lists())
    for _ in range(2):
        rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.begin() as connection:
        assert put(fresh, connection, "a") == {"a"}
    with begun.begin() as connection:
        assert put(bulk, connection, "a", "first") == set()
    assert copies(begun, "a") == 1


def test_a_rotation_gives_up_when_units_are_long(begun: Engine, bulk: GenerationBulk) -> None:
    """It waits only for a moment, because units that come meanwhile wait behind it, and leaves everything as it was."""
    with begun.begin() as running:
        put(bulk, running, "a")
        assert rotation.rotate(begun, SCOPE, AT_ONCE, wait=timedelta(milliseconds=20)) is None
        assert put(bulk, running, "b") == {"b"}
    with begun.connect() as connection:
        assert [each.legacy for each in registry.generations_of(connection, SCOPE)] == [False, True]


def test_two_processes_that_rotate_at_once_rotate_once(begun: Engine, aside: ThreadPoolExecutor) -> None:
    """The second waits for the first, and finds a generation that is not due."""
    second: list[Future[bool | None]] = []

    def point(step: str) -> None:
        if step == "locked":
            second.append(aside.submit(rotation.rotate, begun, SCOPE, timedelta(hours=1), wait=LONG))
            with begun.begin() as connection:
                # Not due yet for the second: the row is old for both only while the first has not committed.
                assert (
                    connection.scalar(text("SELECT count(*) FROM oncemq_generations WHERE sealed_at IS NULL"))
                    == 1
                )

    with begun.begin() as connection:
        connection.execute(text("UPDATE oncemq_generations SET opened_at = opened_at - interval '2 hours'"))
    assert rotation.rotate(begun, SCOPE, timedelta(hours=1), done=point)
    assert second[0].result() is False
    with begun.connect() as connection:
        assert len(registry.generations_of(connection, SCOPE)) == 3


def test_a_consumer_has_one_open_generation(begun: Engine) -> None:
    """The database refuses a second one, whatever a process believes."""
    row = {"consumer": SCOPE, "now": NOW}
    with begun.begin() as connection, pytest.raises(IntegrityError):
        connection.execute(
            text(
                "INSERT INTO oncemq_generations (consumer, legacy, opened_at) VALUES (:consumer, false, :now)"
            ),
            row,
        )


def test_records_from_before_are_the_oldest_generation(ledger: Engine, bulk: GenerationBulk) -> None:
    """What the old table has is a duplicate, of this consumer only."""
    with ledger.begin() as connection:
        old = bulk_for(connection.dialect, SHAPE)
        old.insert_new(connection, SCOPE, [("a", "k")], NOW)
        old.insert_new(connection, "shop.other", [("b", "k")], NOW)
    assert rotation.begin(ledger, SCOPE)
    assert not rotation.begin(ledger, SCOPE)
    with ledger.begin() as connection:
        assert put(bulk, connection, "a", "b") == {"b"}


def test_a_process_without_the_option_is_refused(begun: Engine) -> None:
    """It may not write the old table any more, is told why, and no message is charged; other consumers are not concerned."""
    with begun.begin() as connection:
        old = bulk_for(connection.dialect, SHAPE)
        assert old.insert_new(connection, "shop.other", [("a", "k")], NOW) == {"a"}
        with pytest.raises(DBAPIError, match=r"ledger: \{generations: 1d\}") as refused:
            old.insert_new(connection, SCOPE, [("a", "k")], NOW)
    assert classify(refused.value) is Fault.SETUP


def test_generations_begin_after_units_that_write_the_old_table(
    ledger: Engine, bulk: GenerationBulk, aside: ThreadPoolExecutor
) -> None:
    """A process without the option that has inserted a record is waited for, so its message is a duplicate."""
    with ledger.begin() as running:
        bulk_for(running.dialect, SHAPE).insert_new(running, SCOPE, [("a", "k")], NOW)
        beginning = aside.submit(rotation.begin, ledger, SCOPE)
        blocked(ledger)
    assert beginning.result()
    with ledger.begin() as connection:
        assert put(bulk, connection, "a") == set()


def test_a_retired_generation_is_dropped_while_units_run(begun: Engine, bulk: GenerationBulk) -> None:
    """Nothing waits: the units that run have the list without it; one that still uses it keeps it for a while."""
    with begun.begin() as connection:
        put(bulk, connection, "old")
    rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.begin() as using:
        put(bulk, using, "a")
        assert rotation.retire(begun, SCOPE, AT_ONCE) == 2
        assert rotation.drop_retired(begun, SCOPE, after=AT_ONCE) == []
    with begun.begin() as unit:
        fresh = GenerationBulk(SHAPE, Lists())
        assert put(fresh, unit, "b") == {"b"}
        assert len(rotation.drop_retired(begun, SCOPE, after=AT_ONCE)) == 1
        assert put(fresh, unit, "c") == {"c"}


def test_a_generation_inside_keep_stays(begun: Engine, bulk: GenerationBulk) -> None:
    """What was sealed less than `keep` ago is looked up, though it was opened long before."""
    with begun.begin() as connection:
        put(bulk, connection, "a")
        connection.execute(text("UPDATE oncemq_generations SET opened_at = opened_at - interval '30 days'"))
    rotation.rotate(begun, SCOPE, AT_ONCE)
    assert rotation.retire(begun, SCOPE, timedelta(hours=1)) == 0
    assert rotation.drop_retired(begun, SCOPE, after=AT_ONCE) == []
    with begun.begin() as connection:
        assert put(bulk, connection, "a") == set()


def test_a_retired_generation_is_not_dropped_at_once(begun: Engine) -> None:
    """Processes have a minute to read the list again before its table goes."""
    rotation.rotate(begun, SCOPE, AT_ONCE)
    assert rotation.retire(begun, SCOPE, AT_ONCE) == 2
    assert rotation.drop_retired(begun, SCOPE) == []


def test_a_list_is_read_again_after_a_while(begun: Engine) -> None:
    """So a process without duplicates, whose generation was not sealed, learns that a table was retired."""
    lists = Lists()
    bulk = GenerationBulk(SHAPE, lists)
    with begun.begin() as connection:
        put(bulk, connection, "old")
    rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.begin() as connection:
        put(bulk, connection, "a")
    rotation.retire(begun, SCOPE, AT_ONCE)
    lists.now += 11
    with begun.begin() as connection:
        assert put(bulk, connection, "b") == {"b"}
        assert len(rotation.drop_retired(begun, SCOPE, after=AT_ONCE)) == 1


def test_a_process_that_was_stopped_while_a_table_was_dropped_runs_its_unit_again(
    begun: Engine, bulk: GenerationBulk
) -> None:
    """The unit fails as by a busy database, without charging a message, and succeeds with a new list."""
    rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.begin() as connection:
        put(bulk, connection, "a")
    rotation.retire(begun, SCOPE, AT_ONCE)
    rotation.drop_retired(begun, SCOPE, after=AT_ONCE)
    with begun.begin() as connection, pytest.raises(InfrastructureError):
        put(bulk, connection, "b")
    with begun.begin() as connection:
        assert put(bulk, connection, "a", "b") == {"b"}


def test_a_run_changes_its_records_where_it_inserted_them(begun: Engine, bulk: GenerationBulk) -> None:
    """Fingerprint and result are stored and read, from older generations too, and what is not final is deleted."""
    with begun.begin() as connection:
        put(bulk, connection, "a", "b")
        bulk.update(connection, SCOPE, [("a", "print", "[1]")], NOW)
        bulk.delete(connection, SCOPE, ["b"])
    rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.begin() as connection:
        assert put(bulk, connection, "a", "b") == {"b"}
        assert bulk.read(connection, SCOPE, ["a"]) == {"a": ("print", "[1]")}


def test_sealed_generations_become_compact_once(begun: Engine, bulk: GenerationBulk) -> None:
    """The index is rebuilt, which blocks nothing; an interrupted rebuild leaves nothing behind."""
    with begun.begin() as connection:
        put(bulk, connection, *(f"order {number}" for number in range(2000)))
    rotation.rotate(begun, SCOPE, AT_ONCE)
    with begun.connect() as connection:
        table = registry.generations_of(connection, SCOPE)[1].table
        grown = connection.scalar(text(f"SELECT pg_relation_size('{table}_id')"))
    with begun.begin() as connection:
        connection.execute(text(f"CREATE INDEX {table}_id_ccnew ON {table} (key)"))
        connection.execute(text(f"CREATE INDEX {table}_key ON {table} (result)"))
    with begun.begin() as unit:
        put(bulk, unit, "a")
        unit.commit()
        assert rotation.compact(begun, SCOPE) == [table]
    assert rotation.compact(begun, SCOPE) == []
    with begun.begin() as connection:
        assert connection.scalar(text(f"SELECT pg_relation_size('{table}_id')")) < grown
        found = text(f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename = '{table}'")
        indexes = {row[0]: row[1] for row in connection.execute(found)}
        assert set(indexes) == {f"{table}_id", f"{table}_at", f"{table}_key"}
        assert "(key)" in indexes[f"{table}_key"]
        assert put(bulk, connection, "order 7") == set()
