"""Whose fault a database error is."""

import sqlite3

import psycopg
import pymysql
import pytest
from sqlalchemy import exc

from oncemq.errors import InfrastructureError
from oncemq.retry.classify import MYSQL, POSTGRESQL, SQLITE, Fault, classify, is_unique_violation


def wrapped(original: BaseException, *, lost: bool = False) -> exc.DBAPIError:
    """Return the error as SQLAlchemy raises it."""
    return exc.DBAPIError("SELECT 1", {}, original, connection_invalidated=lost)


def of_postgresql(sqlstate: str) -> BaseException:
    """Return psycopg's error for a SQLSTATE."""
    try:
        return psycopg.errors.lookup(sqlstate)("")
    except KeyError:
        error = psycopg.DatabaseError("")
        error.sqlstate = sqlstate
        return error


def of_sqlite(code: int) -> BaseException:
    """Return sqlite3's error for a result code."""
    error = sqlite3.DatabaseError("")
    error.sqlite_errorcode = code
    return error


EVERY_CLASS = [
    ("40P01", 1213, 5, Fault.TRANSIENT),  # deadlock; busy
    ("40001", 1020, 6, Fault.TRANSIENT),  # serialization; locked
    ("55P03", 1205, 5, Fault.TRANSIENT),  # lock time-out
    ("57014", 1317, 9, Fault.CANCELLED),  # query cancelled
    ("57P01", 1053, 10, Fault.OFFLINE),  # admin shutdown; input or output
    ("57P02", 1927, 10, Fault.OFFLINE),  # crash shutdown; killed
    ("08006", 2013, 14, Fault.OFFLINE),  # connection lost; cannot open
    ("08003", 2006, 26, Fault.OFFLINE),  # gone; not a database
    ("53300", 1040, 11, Fault.OFFLINE),  # too many connections; corrupt
    ("53100", 1021, 13, Fault.OFFLINE),  # disk full
    ("25006", 1290, 8, Fault.OFFLINE),  # read-only
    ("42P01", 1146, 1, Fault.SETUP),  # undefined table
    ("42703", 1054, 1, Fault.SETUP),  # undefined column
    ("42501", 1142, 3, Fault.SETUP),  # permission
    ("28P01", 1045, 23, Fault.SETUP),  # password
    ("3D000", 1049, 1, Fault.SETUP),  # database
    ("23505", 1062, 2067, Fault.DATA),  # unique
    ("23503", 1452, 787, Fault.DATA),  # foreign key
    ("23514", 4025, 275, Fault.DATA),  # check
    ("23502", 1048, 1299, Fault.DATA),  # not null
    ("22001", 1406, 18, Fault.DATA),  # too long
    ("22P02", 1366, 20, Fault.DATA),  # not of the type
]


@pytest.mark.parametrize(("sqlstate", "errno", "code", "fault"), EVERY_CLASS)
def test_every_class_is_known_on_every_database(sqlstate: str, errno: int, code: int, fault: Fault) -> None:
    """Each kind of trouble has the same fault on PostgreSQL, MySQL and SQLite, wrapped or not."""
    for error in (of_postgresql(sqlstate), pymysql.err.DatabaseError(errno, "…"), of_sqlite(code)):
        assert classify(error) is fault, error
        assert classify(wrapped(error)) is fault, error


def test_every_error_class_of_psycopg_has_a_fault() -> None:
    """No SQLSTATE class that psycopg names as integrity, data or operational error is unknown."""
    found = (cls for cls in vars(psycopg.errors).values() if isinstance(cls, type))
    named = [cls for cls in found if isinstance(getattr(cls, "sqlstate", None), str)]
    blamed = [cls for cls in named if issubclass(cls, psycopg.IntegrityError | psycopg.DataError)]
    assert len(blamed) > 50
    assert {classify(cls("")) for cls in blamed} == {Fault.DATA}
    outages = [cls for cls in named if cls.sqlstate[:2] in {"08", "53", "57", "58"}]
    assert len(outages) > 15
    assert {classify(cls("")) for cls in outages} <= {
        Fault.OFFLINE,
        Fault.CANCELLED,
        Fault.TRANSIENT,
        Fault.SETUP,
    }


def test_every_error_number_that_pymysql_maps_is_known() -> None:
    """Where PyMySQL knows that a number is an integrity error, so do we."""
    integrity = [number for number, cls in pymysql.err.error_map.items() if cls is pymysql.err.IntegrityError]
    assert {classify(pymysql.err.IntegrityError(number, "…")) for number in integrity} == {Fault.DATA}


@pytest.mark.parametrize(
    ("errno", "sqlstate", "fault"),
    [
        (3140, "22032", Fault.DATA),  # not JSON
        (3616, "22S02", Fault.DATA),  # no longitude
        (3101, "40000", Fault.TRANSIENT),  # another member of the group was first
        (1047, "08S01", Fault.OFFLINE),  # not yet a member of the cluster
        (1136, "21S01", Fault.SETUP),  # as many values as columns
        (1118, "42000", Fault.SETUP),  # row too large
        (1862, "HY000", Fault.SETUP),  # password has expired
        (1105, "HY000", Fault.OFFLINE),  # unknown error
    ],
)
def test_a_number_that_mysql_has_many_of_is_known_by_its_sqlstate(
    errno: int, sqlstate: str, fault: Fault
) -> None:
    """Else bad JSON, which is one message's, would pass for a database that is away."""
    error = pymysql.err.OperationalError(errno, "…", sqlstate=sqlstate)
    assert classify(error) is fault
    assert classify(wrapped(error)) is fault


def test_bad_json_is_data_where_the_driver_tells_no_sqlstate() -> None:
    """Older versions of PyMySQL leave only the number."""
    for errno in (3140, 3141):
        assert classify(pymysql.err.OperationalError(errno, "…")) is Fault.DATA


def test_tables_use_every_fault() -> None:
    """Each table names errors of every kind."""
    wanted = {Fault.TRANSIENT, Fault.OFFLINE, Fault.DATA, Fault.CANCELLED, Fault.SETUP}
    for table in (POSTGRESQL, MYSQL, SQLITE):
        assert set(table.values()) == wanted


def test_a_lost_connection_is_offline() -> None:
    """SQLAlchemy's own word that the connection is gone counts, whatever the driver said."""
    assert classify(wrapped(sqlite3.ProgrammingError("?"), lost=True)) is Fault.OFFLINE
    assert classify(psycopg.OperationalError("server closed the connection unexpectedly")) is Fault.OFFLINE
    assert classify(psycopg.InterfaceError("the connection is closed")) is Fault.OFFLINE
    assert classify(pymysql.err.InterfaceError(0, "")) is Fault.OFFLINE
    assert classify(sqlite3.ProgrammingError("Cannot operate on a closed database.")) is Fault.OFFLINE


def test_what_a_driver_refuses_is_data() -> None:
    """A value that the driver cannot send is the item's own."""
    assert classify(psycopg.DataError("PostgreSQL text fields cannot contain NUL")) is Fault.DATA


def test_our_own_trouble_is_transient() -> None:
    """Infrastructure errors of strategies and an exhausted pool are tried again."""
    assert classify(InfrastructureError("purged meanwhile")) is Fault.TRANSIENT
    assert classify(exc.TimeoutError("QueuePool limit")) is Fault.TRANSIENT


def test_other_errors_are_unknown() -> None:
    """What no database raised is no one's here, also errors that only look alike."""
    for error in (ValueError("locked"), ConnectionError("refused"), TimeoutError(), KeyError("1213")):
        assert classify(error) is Fault.UNKNOWN


def test_unique_violations_are_recognized() -> None:
    """On all three databases, and nothing else is taken for one."""
    unique = sqlite3.IntegrityError("")
    unique.sqlite_errorname = "SQLITE_CONSTRAINT_UNIQUE"
    for error in (of_postgresql("23505"), pymysql.err.IntegrityError(1062, "…"), unique):
        assert is_unique_violation(error)
        assert is_unique_violation(wrapped(error))
    for error in (
        of_postgresql("23503"),
        pymysql.err.IntegrityError(1452, "…"),
        of_sqlite(787),
        ValueError(),
    ):
        assert not is_unique_violation(error)
