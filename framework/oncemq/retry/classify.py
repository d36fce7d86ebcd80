"""Classifies database errors: one table for each database, and one function that reads them.

Whether an error is charged depends on this and on who else meets it: see `oncemq.engine.transaction.error_attribution`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import exc
from sqlalchemy.orm.exc import StaleDataError

from oncemq.common.error_text import attribute, text_of
from oncemq.errors import InfrastructureError


class Fault(StrEnum):
    """Cause of an error, which decides what to do next."""

    TRANSIENT = "transient"
    """Deadlock, serialization failure, lock wait timed out: the same run may succeed in a moment."""
    OFFLINE = "offline"
    """Connection lost, server unavailable, full or read-only: wait until it recovers."""
    DATA = "data"
    """The item's own values are invalid: constraint or data error."""
    CANCELLED = "cancelled"
    """The statement was cancelled by a time limit."""
    SETUP = "setup"
    """A table, column or permission is missing: an operator must act."""
    UNKNOWN = "unknown"
    """Not a database error, or not listed in any table."""


POSTGRESQL: Mapping[str, Fault] = {
    "40001": Fault.TRANSIENT,  # serialization failure
    "40P01": Fault.TRANSIENT,  # deadlock detected
    "40003": Fault.TRANSIENT,  # statement completion unknown
    "55P03": Fault.TRANSIENT,  # lock not available
    "55006": Fault.TRANSIENT,  # object in use
    "53200": Fault.TRANSIENT,  # out of memory, which includes the lock table
    "57014": Fault.CANCELLED,  # query cancelled
    "25P04": Fault.CANCELLED,  # transaction time-out
    "25006": Fault.OFFLINE,  # read-only: we are connected to a replica
    "25P03": Fault.OFFLINE,  # idle-in-transaction time-out; the connection is closed
    "57P01": Fault.OFFLINE,  # admin shutdown
    "57P02": Fault.OFFLINE,  # crash shutdown
    "57P03": Fault.OFFLINE,  # cannot connect now
    "57P04": Fault.SETUP,  # database dropped
    "57": Fault.OFFLINE,  # operator intervention, such as an idle session time-out
    "08": Fault.OFFLINE,  # connection exception
    "53": Fault.OFFLINE,  # too many connections, disk full
    "58": Fault.OFFLINE,  # system error, such as I/O
    "22": Fault.DATA,  # data exception
    "23": Fault.DATA,  # unique, foreign key, check, not null
    "44": Fault.DATA,  # check option of a view
    "54": Fault.DATA,  # program limit exceeded, such as an index row too long
    "P0001": Fault.DATA,  # raised by a trigger
    "0A": Fault.SETUP,  # feature not supported
    "28": Fault.SETUP,  # wrong user or password
    "3D": Fault.SETUP,  # database does not exist
    "3F": Fault.SETUP,  # schema does not exist
    "42": Fault.SETUP,  # undefined table or column, permission, syntax
}
"""By SQLSTATE; two characters stand for the whole class."""

MYSQL: Mapping[int, Fault] = {
    1213: Fault.TRANSIENT,  # deadlock; the normal case when the first of several duplicates rolls back
    1205: Fault.TRANSIENT,  # lock wait time-out
    1020: Fault.TRANSIENT,  # record has changed since last read
    3572: Fault.TRANSIENT,  # NOWAIT found the row locked
    1206: Fault.TRANSIENT,  # lock table is full
    1317: Fault.CANCELLED,  # query interrupted
    1969: Fault.CANCELLED,  # MariaDB max_statement_time
    3024: Fault.CANCELLED,  # MySQL max_execution_time
    0: Fault.OFFLINE,  # PyMySQL on a closed connection
    1040: Fault.OFFLINE,  # too many connections
    1042: Fault.OFFLINE,
    1043: Fault.OFFLINE,
    1053: Fault.OFFLINE,  # server shutdown
    1129: Fault.OFFLINE,  # host is blocked
    1158: Fault.OFFLINE,
    1159: Fault.OFFLINE,
    1160: Fault.OFFLINE,
    1161: Fault.OFFLINE,
    1203: Fault.OFFLINE,  # too many connections of this user
    1226: Fault.OFFLINE,  # a resource limit of this user
    1927: Fault.OFFLINE,  # connection was killed
    2002: Fault.OFFLINE,
    2003: Fault.OFFLINE,
    2005: Fault.OFFLINE,
    2006: Fault.OFFLINE,  # server has gone away
    2013: Fault.OFFLINE,  # lost connection during query
    2014: Fault.OFFLINE,  # commands out of sync
    2055: Fault.OFFLINE,
    4031: Fault.OFFLINE,  # disconnected for inactivity
    3: Fault.OFFLINE,  # error writing a file
    1021: Fault.OFFLINE,  # disk full
    1026: Fault.OFFLINE,
    1030: Fault.OFFLINE,  # the storage engine failed
    1114: Fault.OFFLINE,  # table is full
    1290: Fault.OFFLINE,  # started read-only
    1792: Fault.OFFLINE,  # read-only transaction
    1836: Fault.OFFLINE,  # running read-only
    1022: Fault.DATA,
    1048: Fault.DATA,  # not null
    1062: Fault.DATA,  # duplicate key
    1153: Fault.DATA,  # packet too large
    1169: Fault.DATA,
    1216: Fault.DATA,
    1217: Fault.DATA,
    1264: Fault.DATA,  # out of range
    1265: Fault.DATA,  # truncated
    1292: Fault.DATA,  # incorrect value
    1364: Fault.DATA,  # no default value
    1365: Fault.DATA,  # division by zero
    1366: Fault.DATA,  # incorrect string value
    1406: Fault.DATA,  # data too long
    1411: Fault.DATA,
    1451: Fault.DATA,  # foreign key, parent
    1452: Fault.DATA,  # foreign key, child
    1586: Fault.DATA,
    1644: Fault.DATA,  # SIGNAL by a trigger
    1690: Fault.DATA,
    1139: Fault.DATA,  # MariaDB: invalid regular expression
    **dict.fromkeys(range(3685, 3701), Fault.DATA),  # MySQL: the same, one number for each kind of mistake
    1242: Fault.DATA,  # a subquery found several rows
    1300: Fault.DATA,  # invalid UTF-8
    1301: Fault.DATA,  # larger than max_allowed_packet
    1526: Fault.DATA,  # no partition for this value
    3140: Fault.DATA,  # invalid JSON in a column of MySQL
    3141: Fault.DATA,  # invalid JSON in a function
    3819: Fault.DATA,  # MySQL check constraint
    4025: Fault.DATA,  # MariaDB check constraint
    1044: Fault.SETUP,  # no access to the database
    1045: Fault.SETUP,  # wrong user or password
    1049: Fault.SETUP,  # unknown database
    1054: Fault.SETUP,  # unknown column
    1064: Fault.SETUP,  # syntax
    1142: Fault.SETUP,  # command denied
    1143: Fault.SETUP,
    1146: Fault.SETUP,  # no such table
    1227: Fault.SETUP,
    1305: Fault.SETUP,
    1370: Fault.SETUP,
    1193: Fault.SETUP,  # unknown variable
    1251: Fault.SETUP,  # the client does not support this user's authentication method
    1273: Fault.SETUP,  # unknown collation
    1665: Fault.SETUP,  # binlog_format = STATEMENT allows no READ COMMITTED
    1698: Fault.SETUP,  # access denied without a password
    1820: Fault.SETUP,  # the password must be changed
    1862: Fault.SETUP,  # the password has expired
    2059: Fault.SETUP,  # PyMySQL does not support this user's authentication method
    3105: Fault.SETUP,  # a value for a generated column
    3118: Fault.SETUP,  # the account is locked
    3159: Fault.SETUP,  # the server requires TLS
    3568: Fault.SETUP,  # FOR UPDATE OF a table that is not in the query
    4151: Fault.SETUP,  # MariaDB: the account is locked
}
"""By error number of MySQL, MariaDB and their client library."""

MYSQL_STATES: Mapping[str, Fault] = {
    "40": Fault.TRANSIENT,  # rolled back, for example by another member of a replication group at COMMIT
    "08": Fault.OFFLINE,  # connection exception
    "22": Fault.DATA,  # data exception
    "23": Fault.DATA,  # unique, foreign key, not null
    "44": Fault.DATA,  # check option of a view
    "45": Fault.DATA,  # raised by a trigger
    "21": Fault.SETUP,  # number of values and columns differs
    "28": Fault.SETUP,  # wrong user or password
    "42": Fault.SETUP,  # undefined table or column, permission, syntax
}
"""By the class of the SQLSTATE, for numbers not in `MYSQL`; the most frequent class, HY000, says nothing."""

SQLITE: Mapping[int, Fault] = {
    5: Fault.TRANSIENT,  # BUSY
    6: Fault.TRANSIENT,  # LOCKED
    15: Fault.TRANSIENT,  # PROTOCOL: a race in the locking
    17: Fault.TRANSIENT,  # SCHEMA changed meanwhile
    9: Fault.CANCELLED,  # INTERRUPT
    7: Fault.OFFLINE,  # NOMEM
    8: Fault.OFFLINE,  # READONLY
    10: Fault.OFFLINE,  # IOERR
    11: Fault.OFFLINE,  # CORRUPT
    13: Fault.OFFLINE,  # FULL
    14: Fault.OFFLINE,  # CANTOPEN
    26: Fault.OFFLINE,  # NOTADB
    18: Fault.DATA,  # TOOBIG
    19: Fault.DATA,  # CONSTRAINT
    20: Fault.DATA,  # MISMATCH
    25: Fault.DATA,  # RANGE
    1: Fault.SETUP,  # ERROR: no such table or column, syntax
    3: Fault.SETUP,  # PERM
    23: Fault.SETUP,  # AUTH
}
"""By SQLite's primary result code."""

_MYSQL_UNIQUE = frozenset({1022, 1062, 1169, 1586})
"""The numbers of `MYSQL` for a unique constraint violation."""

_MYSQL_LOCKED = frozenset({1205, 3572})
_SQLITE_LOCKED = frozenset({5, 6})

_BY_CLASS: Mapping[str, Fault] = {
    "OperationalError": Fault.OFFLINE,
    "InterfaceError": Fault.OFFLINE,
    "IntegrityError": Fault.DATA,
    "DataError": Fault.DATA,
    "ProgrammingError": Fault.DATA,
    "NotSupportedError": Fault.DATA,
}
"""For errors that a driver raises itself, without a server code: the names are those of PEP 249.

A value that the driver itself refuses, for example because it cannot send its type, says nothing about tables.
"""


_NUMBERS = re.compile(r"\d+")


def classify(error: BaseException) -> Fault:
    """Return the fault behind `error`; understands SQLAlchemy's wrappers and plain driver errors; never raises."""
    kind = type(error)  # not isinstance, which runs the object's own code
    if issubclass(kind, StaleDataError):
        return Fault.DATA  # its row is gone or was changed concurrently; see `is_stale`
    if issubclass(kind, InfrastructureError | exc.TimeoutError):
        return Fault.TRANSIENT  # our own pool has no free connection
    if issubclass(kind, exc.DBAPIError):
        if attribute(error, "connection_invalidated"):
            return Fault.OFFLINE
        error = _original(error)
        if issubclass(type(error), exc.DBAPIError):
            return Fault.UNKNOWN
    try:
        return _of_driver(error)
    except Exception:  # an error with attributes that no driver sets
        return Fault.UNKNOWN


def is_unique_violation(error: BaseException) -> bool:
    """Return whether `error` is a unique constraint violation."""
    original = _original(error)
    if _driver(original) == "sqlite3":
        return getattr(original, "sqlite_errorname", "") in {
            "SQLITE_CONSTRAINT_UNIQUE",
            "SQLITE_CONSTRAINT_PRIMARYKEY",
            "SQLITE_CONSTRAINT_ROWID",
        }
    return _sqlstate(original) == "23505" or (_is_mysql(original) and _errno(original) in _MYSQL_UNIQUE)


def is_lock_timeout(error: BaseException) -> bool:
    """Return whether `error` is a lock wait that timed out: another transaction holds the row."""
    original = _original(error)
    return _sqlstate(original) == "55P03" or (_is_mysql(original) and _errno(original) in _MYSQL_LOCKED)


def is_stale(error: BaseException) -> bool:
    """Return whether a row was deleted or changed since it was read: by a concurrent transaction, or always."""
    return issubclass(type(error), StaleDataError)


def is_contention(error: BaseException) -> bool:
    """Return whether `error` is a conflict between transactions of several units."""
    return classify(error) is Fault.TRANSIENT and not issubclass(
        type(error), InfrastructureError | exc.TimeoutError
    )


def signature_of(error: BaseException) -> tuple[str, str, str]:
    """Return the parts that make two errors alike: class, server code, and text without numbers."""
    original = _original(error)
    code = _sqlstate(original) or str(_errno(original))
    return type(original).__name__, code, _NUMBERS.sub("0", text_of(original, 200))


def is_whole_database_locked(error: BaseException) -> bool:
    """Return whether `error` says that the whole database is locked: a single writer does not end."""
    original = _original(error)
    return (
        _driver(original) == "sqlite3" and getattr(original, "sqlite_errorcode", 0) & 0xFF in _SQLITE_LOCKED
    )


def _original(error: BaseException) -> BaseException:
    if not issubclass(type(error), exc.DBAPIError):
        return error
    original = attribute(error, "orig")
    return original if issubclass(type(original), BaseException) else error


def _of_driver(error: BaseException) -> Fault:
    driver = _driver(error)
    found: Fault | None = None
    if driver in {"psycopg", "psycopg2"}:
        state = _sqlstate(error)
        found = POSTGRESQL.get(state) or POSTGRESQL.get(state[:2])
        if found is None and state:
            return Fault.UNKNOWN
    elif _is_mysql(error):
        found = MYSQL.get(_errno(error)) or MYSQL_STATES.get(_sqlstate(error)[:2])
    elif driver == "sqlite3":
        found = _of_sqlite(error)
    else:
        return Fault.UNKNOWN
    return found or _of_class(error)


def _of_sqlite(error: BaseException) -> Fault | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        closed = "closed" in text_of(error)
        return Fault.OFFLINE if closed else Fault.DATA
    return SQLITE.get(code & 0xFF)


def _of_class(error: BaseException) -> Fault:
    for base in type(error).__mro__:
        if base.__name__ in _BY_CLASS:
            return _BY_CLASS[base.__name__]
    return Fault.UNKNOWN


def _driver(error: BaseException) -> str:
    """Return the top-level package that defines the error's class; drivers are optional, so none is imported."""
    module = attribute(type(error), "__module__")
    return module.partition(".")[0] if isinstance(module, str) else ""


def _is_mysql(error: BaseException) -> bool:
    return _driver(error) in {"pymysql", "asyncmy", "MySQLdb", "mariadb"}


def _sqlstate(error: BaseException) -> str:
    state = attribute(error, "sqlstate") or attribute(error, "pgcode")
    return state if isinstance(state, str) else ""


def _errno(error: BaseException) -> int:
    code = attribute(error, "errno") or (error.args[0] if error.args else None)
    return code if isinstance(code, int) else -1
