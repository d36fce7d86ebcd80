"""The ways in which a handler can fail: by every class of SQLSTATE, by drivers, by odd exceptions, by what it calls."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from oncemq.contracts.verdict import Culprits
from oncemq.errors import RedisUnavailable, Reject, Retry, StrategyBug
from support.effects import Name

Way = Callable[[Session], Any]


class Raising(Exception):
    """Raises from whatever it is asked."""

    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise ValueError("no text")

    @property
    def orig(self) -> Any:
        """Raise."""
        raise SystemExit

    @property
    def sqlstate(self) -> Any:
        """Raise."""
        raise KeyError

    @property
    def __cause__(self) -> Any:
        raise RuntimeError

    @property
    def __class__(self) -> Any:
        raise RuntimeError


class Lying(Exception):
    """Has attributes that no driver sets."""

    orig = "text"
    sqlstate = 42
    errno = "no number"
    sqlite_errorcode = None
    connection_invalidated = True


class NotText(Exception):
    """Has a text that is none."""

    def __str__(self) -> str:
        return 3  # type: ignore[return-value]  # noqa: PLE0307 - that is its point


def raising(error: BaseException) -> Way:
    """Return a way that raises this."""

    def way(_: Session) -> None:
        raise error

    return way


def sending(statement: str, **values: Any) -> Way:
    """Return a way that sends this."""
    return lambda session: session.execute(text(statement), values)


def bare(statement: str) -> Way:
    """Return a way that sends this by the driver's own cursor on the unit's connection."""

    def way(session: Session) -> None:
        session.connection().connection.cursor().execute(statement)

    return way


def endless(session: Session) -> None:
    """Call itself until the stack ends."""
    endless(session)


def chained(depth: int) -> Way:
    """Return a way that fails with so long a chain of causes, which ends in a circle."""

    def way(_: Session) -> None:
        first = error = ValueError("the last one")
        for number in range(depth):
            error.__cause__ = RuntimeError(f"cause {number}")
            error = error.__cause__  # type: ignore[assignment]
        error.__cause__ = first
        raise first

    return way


def wrong_delay(after: Any) -> Way:
    """Return a way that asks for a delay that is none."""

    def way(_: Session) -> None:
        raise Retry("later", after=after)

    return way


def away(_: Session) -> None:
    """Ask another database, which is not there."""
    with create_engine("postgresql+psycopg://absent@127.0.0.1:1/none").connect():
        pass


def without_table(_: Session) -> None:
    """Ask a database of its own for what is not in it."""
    sqlite3.connect(":memory:").execute("SELECT 1 FROM nowhere")


def group(session: Session) -> None:
    """Fail in several ways at once."""
    del session
    raise BaseExceptionGroup("several", [ValueError("one"), SystemExit(2), ExceptionGroup("in", [Raising()])])


def add_twice(session: Session) -> None:
    """Add what is there already."""
    session.add(Name(name="taken"))


def add_nonsense(session: Session) -> None:
    """Add what no column can hold, and let the framework flush it."""
    session.add(Name(name={"not": "text"}))


def close_driver(session: Session) -> None:
    """Close the connection behind everything's back."""
    session.connection().connection.driver_connection.close()  # type: ignore[union-attr]


PYTHON: Mapping[str, Way] = {
    "ValueError": raising(ValueError("bad value")),
    "no text": raising(KeyError()),
    "raising from every method": raising(Raising()),
    "lying attributes": raising(Lying("lies")),
    "text that is none": raising(NotText()),
    "lone surrogate": raising(ValueError("odd file \udcff")),
    "NUL and control characters": raising(ValueError("\0 \x01\x02 \x1b[2J \x9b")),
    "a huge text": raising(ValueError("x" * 3_000_000)),
    "a long chain of causes in a circle": chained(200),
    "SystemExit": raising(SystemExit(3)),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "StopIteration": raising(StopIteration(1)),
    "CancelledError": raising(asyncio.CancelledError()),
    "MemoryError": raising(MemoryError()),
    "RecursionError": endless,
    "several at once": group,
    "TimeoutError": raising(TimeoutError("no answer")),
    "ConnectionError": raising(ConnectionResetError("by peer")),
    "Retry after a negative time": wrong_delay(-1),
    "Retry after NaN": wrong_delay(float("nan")),
    "Retry after for ever": wrong_delay(timedelta.max),
    "Retry after a word": wrong_delay("soon"),
    "Reject with an odd text": raising(Reject("no \udcff\0")),
    "a bug of a strategy, said by a handler": raising(StrategyBug("not really")),
    "culprits, said by a handler": raising(Culprits({})),
    "a DBAPIError made by hand": raising(DBAPIError("SELECT 1", {}, None)),  # type: ignore[arg-type]
    "a lost connection made by hand": raising(
        OperationalError("SELECT 1", {}, Exception("?"), connection_invalidated=True)
    ),
    "a stale row": raising(StaleDataError("expected to update 1 row(s); 0 were matched")),
    "Redis is away": raising(RedisUnavailable("no answer")),
    "another database is away": away,
    "another database without its table": without_table,
    "a row that is there already": add_twice,
    "a value that no column can hold": add_nonsense,
    "missing table": sending("SELECT 1 FROM nowhere"),
    "missing column": sending("SELECT nothing FROM names"),
    "missing function": sending("SELECT nothing_like_it(1)"),
    "SQL made of data": sending("SELECT 'O'Brien'"),
    "a value that no driver can send": sending("SELECT :value", value={"not": "text"}),
    "too few values": bare("SELECT %s"),
    "the driver's own cursor": bare("SELECT 1 FROM nowhere"),
    "session.rollback()": lambda session: session.rollback(),
    "session.close()": lambda session: session.close(),
    "COMMIT by hand": sending("COMMIT"),
    "a savepoint left open": lambda session: session.begin_nested(),
}
"""On every database."""

_NAMES = list(PYTHON)
WITHOUT_SESSION = _NAMES[: _NAMES.index("a row that is there already")]
"""Ways that need nothing of the framework's."""

ON_ROCKETMQ: Mapping[str, Way] = {
    "Retry after four days": raising(Retry("later", after=timedelta(days=4))),
}
"""A delay that RocketMQ does not hold: it must block no other retry; other brokers keep the message for so long."""

HARD_TO_CARRY = [
    "raising from every method",
    "lying attributes",
    "lone surrogate",
    "NUL and control characters",
    "a huge text",
    "SystemExit",
    "Retry after for ever",
    "Reject with an odd text",
    "another database is away",
    "missing table",
]
"""Ways whose text, class or delay no broker can keep as they are."""

_STATES = [
    "02000",
    "03000",
    "08000",
    "08006",
    "09000",
    "0A000",
    "0B000",
    "0F000",
    "0L000",
    "0P000",
    "0Z000",
    "20000",
    "21000",
    "22003",
    "22012",
    "22P02",
    "23502",
    "23503",
    "23505",
    "23514",
    "24000",
    "25001",
    "25006",
    "26000",
    "27000",
    "28000",
    "2B000",
    "2D000",
    "2F000",
    "34000",
    "38000",
    "39000",
    "3B000",
    "3D000",
    "3F000",
    "40001",
    "40P01",
    "42501",
    "42601",
    "42703",
    "42804",
    "42883",
    "42P01",
    "44000",
    "53100",
    "53300",
    "54000",
    "55000",
    "55006",
    "57014",
    "57P01",
    "57P03",
    "58030",
    "72000",
    "F0000",
    "HV000",
    "P0001",
    "XX000",
    "ABC12",
]

_POSTGRESQL: Mapping[str, Way] = {
    **{
        f"SQLSTATE {state}": sending(
            f"DO $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '{state}'; END $$"
        )
        for state in _STATES
    },
    "a boolean where a number is wanted": sending("SELECT 1 + :value", value=True),
    "a connection that it kills": sending("SELECT pg_terminate_backend(pg_backend_pid())"),
    "a statement that takes too long": lambda session: (
        session.execute(text("SET LOCAL statement_timeout = 20")),
        session.execute(text("SELECT pg_sleep(5)")),
    ),
    "a connection that it closes": close_driver,
}

_NUMBERS = [
    "1021",
    "1030",
    "1040",
    "1048",
    "1054",
    "1062",
    "1064",
    "1105",
    "1114",
    "1142",
    "1146",
    "1213",
    "1264",
    "1290",
    "1305",
    "1317",
    "1366",
    "1406",
    "1452",
    "1644",
    "1690",
    "1792",
    "1969",
    "3024",
    "3140",
    "3572",
    "3819",
    "4025",
]

_MARIADB: Mapping[str, Way] = {
    **{
        f"error {number}": sending(
            f"BEGIN NOT ATOMIC SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'poison'; END"
        )
        for number in _NUMBERS
        if number != "3572"  # a lock that another holds is waited for, however long
    },
    "a connection that it kills": sending("KILL CONNECTION_ID()"),
    "a statement that takes too long": sending("SET STATEMENT max_statement_time = 0.02 FOR SELECT SLEEP(5)"),
    "a connection that it closes": close_driver,
}

WAYS: Mapping[str, Mapping[str, Way]] = {
    "sqlite": PYTHON,
    "postgresql": {**PYTHON, **_POSTGRESQL},
    "mysql": {**PYTHON, **_MARIADB},
}
"""By dialect."""
