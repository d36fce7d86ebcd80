"""The ledger's tables are created, checked, upgraded, dropped and printed."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, delete, inspect, text

from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import audit
from oncemq.ledger.records.audit import Change
from oncemq.ledger.schema import FIRST_VERSION, MIGRATIONS, Migration

NEWEST = MIGRATIONS[-1].version


def test_creating_twice_changes_nothing(engine: Engine) -> None:
    """What is there stays; the second time nothing is created."""
    assert schema.create(engine) == []
    schema.ensure(engine)


def test_a_strategys_table_is_created_later(engine: Engine) -> None:
    """A strategy that is added to an app needs `tables create` once more, and says so."""
    more = [Table("oncemq_more", MetaData(), Column("id", Integer, primary_key=True))]
    with pytest.raises(LedgerError, match=r"oncemq_more.*oncemq tables create"):
        schema.ensure(engine, more)
    assert schema.create(engine, more) == ["oncemq_more"]
    schema.ensure(engine, more)


def test_a_missing_ledger_says_what_to_type(database_url: str) -> None:
    """An empty database is no reason for a traceback."""
    engine = make_engine(database_url)
    with pytest.raises(LedgerError, match="oncemq tables create"):
        schema.ensure(engine)
    engine.dispose()


def test_dropping_removes_every_table(engine: Engine) -> None:
    """Nothing with our prefix remains; dropping nothing is fine."""
    assert len(schema.drop(engine)) == len(schema.TABLES) + 1
    assert [name for name in inspect(engine).get_table_names() if name.startswith("oncemq_")] == []
    assert schema.drop(engine) == []


def test_upgrading_follows_the_history(engine: Engine) -> None:
    """Every step after the current version runs once, in order, and is written down."""
    steps = [
        Migration(NEWEST + 1, "notes", lambda _: ["ALTER TABLE oncemq_lanes ADD COLUMN note INTEGER"]),
        Migration(NEWEST + 2, "marks", lambda _: ["ALTER TABLE oncemq_lanes ADD COLUMN mark INTEGER"]),
    ]
    assert schema.upgrade(engine, migrations=steps) == [
        f"version {NEWEST + 1}: notes",
        f"version {NEWEST + 2}: marks",
    ]
    assert schema.upgrade(engine, migrations=steps) == []
    columns = {column["name"] for column in inspect(engine).get_columns("oncemq_lanes")}
    assert columns == {"consumer", "note", "mark"}


def test_an_audit_table_of_the_first_version_gets_its_columns_and_keeps_its_rows(engine: Engine) -> None:
    """An older ledger is refused with the command; that command adds the columns, and old changes count as done."""
    change = Change("shop", "shop.pay", "pause", "alice")
    with engine.begin() as connection:
        audit.add(connection, [change])
        connection.execute(text("ALTER TABLE oncemq_audit DROP COLUMN affected"))
        connection.execute(text("ALTER TABLE oncemq_audit DROP COLUMN state"))
        connection.execute(text("UPDATE oncemq_schema SET version = 1"))
    with pytest.raises(LedgerError, match="oncemq tables upgrade"):
        schema.ensure(engine)
    assert schema.upgrade(engine)[0].startswith("version 2: oncemq_audit")
    schema.ensure(engine)
    with engine.connect() as connection:
        (found,) = audit.latest(connection, "shop", 10)
    assert (found.who, found.state, found.affected) == ("alice", "done", None)


def test_a_ledger_without_an_audit_table_gets_it_whole(engine: Engine) -> None:
    """The step for its columns has nothing to do where the table itself is created."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE oncemq_audit"))
        connection.execute(text("UPDATE oncemq_schema SET version = 1"))
    assert "created oncemq_audit" in schema.upgrade(engine)
    schema.ensure(engine)


def test_an_older_or_newer_ledger_says_what_to_do(engine: Engine) -> None:
    """A ledger of another version is refused with the way out."""
    for version, advice in ((0, "oncemq tables upgrade"), (99, "newer OnceMQ")):
        with engine.begin() as connection:
            connection.execute(text("UPDATE oncemq_schema SET version = :v"), {"v": version})
        with pytest.raises(LedgerError, match=advice):
            schema.ensure(engine)
        with pytest.raises(LedgerError, match=advice):
            schema.create(engine)


def test_versions_have_no_gaps() -> None:
    """The history counts on from the first version."""
    numbers = [migration.version for migration in MIGRATIONS]
    assert numbers == list(range(FIRST_VERSION + 1, FIRST_VERSION + 1 + len(MIGRATIONS)))


def test_printed_statements_make_the_same_ledger(database_url: str) -> None:
    """Who runs the DDL by hand gets a ledger that is accepted."""
    engine = make_engine(database_url)
    with engine.begin() as connection:
        for statement in schema.sql(engine.dialect.name).split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement.replace("%", "%%"))
    schema.ensure(engine)
    engine.dispose()


def test_a_restore_changes_the_epoch_and_not_the_version(engine: Engine) -> None:
    """Each restore another one, also of the same backup; before the first there is none."""
    schema.create(engine)
    seen = [schema.birth(engine)]
    assert schema.epoch(engine) == ""
    epochs = set()
    for _ in range(2):
        schema.restored(engine)
        schema.ensure(engine)
        seen.append(schema.birth(engine))
        epochs.add(schema.epoch(engine))
    with engine.begin() as connection:
        connection.execute(delete(schema.VERSIONS).where(schema.VERSIONS.c.version < 0))
    assert schema.birth(engine) == seen[0]
    schema.restored(engine)
    assert len({*seen, schema.birth(engine)}) == 4
    assert len({*epochs, schema.epoch(engine)}) == 3


def test_replicas_may_create_the_tables_at_the_same_time(database_url: str) -> None:
    """Each table is created by one of them, and none of them fails."""
    start = Barrier(4)

    def replica(_: int) -> list[str]:
        engine = make_engine(database_url)
        start.wait(timeout=30)
        created = schema.create(engine)
        engine.dispose()
        return created

    with ThreadPoolExecutor(4) as pool:
        created = [name for names in pool.map(replica, range(4)) for name in names]
    assert len(created) == len(set(created)) == len(schema.TABLES) + 1
