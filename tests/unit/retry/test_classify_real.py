"""Whose fault a database error is, as real servers raise it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, event

from oncemq.ledger.database.engine import make_engine
from oncemq.retry.classify import MYSQL, Fault, classify, is_unique_violation

DEADLINE = 30.0


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine on an empty database with one small table."""
    engine = make_engine(database_url)
    with engine.begin() as connection:
        kind = "ENGINE=InnoDB" if engine.dialect.name == "mysql" else ""
        connection.exec_driver_sql(
            f"CREATE TABLE thing (id INTEGER PRIMARY KEY, name VARCHAR(5) NOT NULL, size INTEGER CHECK (size > 0)) {kind}"
        )
    yield engine
    engine.dispose()


def fault_of(engine: Engine, *statements: str) -> tuple[Fault, BaseException]:
    """Return the fault of the last statement."""
    with pytest.raises(Exception) as caught, engine.begin() as connection:  # noqa: PT012
        for statement in statements:
            connection.exec_driver_sql(statement)
    return classify(caught.value), caught.value


ENDLESS = "SELECT COUNT(*) FROM information_schema.COLLATIONS a, " + ", ".join(
    f"information_schema.COLLATIONS c{number}" for number in range(6)
)
"""For MySQL, where SLEEP ends early without an error."""
GOOD = "INSERT INTO thing VALUES (1, 'a', 1)"


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (GOOD, Fault.DATA),
        ("INSERT INTO thing VALUES (2, NULL, 1)", Fault.DATA),
        ("INSERT INTO thing VALUES (2, 'a', 0)", Fault.DATA),
        ("INSERT INTO nothing VALUES (1)", Fault.SETUP),
        ("INSERT INTO thing (nothing) VALUES (1)", Fault.SETUP),
    ],
    ids=["unique", "not-null", "check", "table", "column"],
)
def test_statements(engine: Engine, statement: str, fault: Fault) -> None:
    """Violations are the item's, missing tables and columns are a person's."""
    found, error = fault_of(engine, GOOD, statement)
    assert found is fault
    assert is_unique_violation(error) == (statement == GOOD)


def test_a_lock_that_takes_too_long_is_transient(engine: Engine) -> None:
    """The wait for a row, or on SQLite for the file, ends with a fault that is tried again."""
    shorter = {
        "postgresql": "SET lock_timeout = '100ms'",
        "mysql": "SET innodb_lock_wait_timeout = 1",
        "sqlite": "PRAGMA busy_timeout = 100",
    }

    def impatient(connection: object, _record: object) -> None:
        connection.cursor().execute(shorter[engine.dialect.name])  # type: ignore[attr-defined]

    rival = make_engine(engine.url.render_as_string(hide_password=False))
    event.listen(rival, "connect", impatient)
    with engine.begin() as connection:
        connection.exec_driver_sql(GOOD)
        assert fault_of(rival, GOOD)[0] is Fault.TRANSIENT
    rival.dispose()


def _cross(engine: Engine, first: str, second: str, barrier: threading.Barrier) -> Fault | None:
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(first)
            barrier.wait(DEADLINE)
            connection.exec_driver_sql(second)
    except threading.BrokenBarrierError:
        raise
    except Exception as error:
        return classify(error)
    return None


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.server
def test_a_deadlock_is_transient(server: str, request: pytest.FixtureRequest) -> None:
    """Two transactions that lock two rows crosswise: one commits, the other is to be tried again."""
    engine = make_engine(request.getfixturevalue(f"{server}_database"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE pair (id INTEGER PRIMARY KEY, size INTEGER)")
        connection.exec_driver_sql("INSERT INTO pair VALUES (1, 0), (2, 0)")
    first, second = (f"UPDATE pair SET size = size + 1 WHERE id = {number}" for number in (1, 2))
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        faults = [
            threads.submit(_cross, engine, *order, barrier) for order in ((first, second), (second, first))
        ]
        assert {future.result(DEADLINE) for future in faults} == {None, Fault.TRANSIENT}
    engine.dispose()


@pytest.mark.parametrize(
    ("server", "kill"),
    [
        ("postgresql", ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})")),
        ("mariadb", ("SELECT CONNECTION_ID()", "KILL {}")),
    ],
)
@pytest.mark.server
def test_a_killed_connection_is_offline(
    server: str, kill: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    """A connection that the server ends is the server's trouble."""
    engine = make_engine(request.getfixturevalue(f"{server}_database"))
    with engine.connect() as victim, engine.connect() as killer:
        number = victim.exec_driver_sql(kill[0]).scalar()
        killer.exec_driver_sql(kill[1].format(number))
        with pytest.raises(Exception) as caught:
            victim.exec_driver_sql("SELECT 1")
        assert classify(caught.value) is Fault.OFFLINE
    engine.dispose()


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.server
def test_a_cancelled_statement_is_cancelled(server: str, request: pytest.FixtureRequest) -> None:
    """A statement that the server's time limit ends says so."""
    engine = make_engine(request.getfixturevalue(f"{server}_database"))
    with engine.connect() as connection:
        mysql = not getattr(connection.dialect, "is_mariadb", True)
    limit, endless = {
        "postgresql": ("SET statement_timeout = '50ms'", "SELECT pg_sleep(30)"),
        "mysql": ("SET max_execution_time = 50" if mysql else "SET max_statement_time = 0.05", ENDLESS),
    }[engine.dialect.name]
    assert fault_of(engine, limit, endless)[0] is Fault.CANCELLED
    engine.dispose()


def test_an_interrupted_statement_of_sqlite_is_cancelled(sqlite_database: str) -> None:
    """SQLite has no time limit, but can be told to stop."""
    engine = make_engine(sqlite_database)
    interrupt: Callable[[], int] = lambda: 1  # noqa: E731 - SQLite asks this between steps
    with pytest.raises(Exception) as caught, engine.begin() as connection:  # noqa: PT012
        connection.connection.driver_connection.set_progress_handler(interrupt, 10)  # type: ignore[union-attr]
        connection.exec_driver_sql("SELECT COUNT(*) FROM sqlite_master a, sqlite_master b")
    assert classify(caught.value) is Fault.CANCELLED
    engine.dispose()


@pytest.mark.server
def test_a_value_that_mariadb_cannot_read_is_data(mariadb_database: str) -> None:
    """Numbers of errors that the table does not list are known by their SQLSTATE."""
    engine = make_engine(mariadb_database)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE places (place POINT)")
    fault, error = fault_of(engine, "INSERT INTO places VALUES ('nowhere')")
    assert error.orig.args[0] not in MYSQL  # type: ignore[attr-defined]
    assert fault is Fault.DATA
    engine.dispose()
