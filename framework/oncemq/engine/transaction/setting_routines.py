"""Finds the database's own functions that change settings of a connection: a message that calls one runs alone (rule 20).

Nothing in `SELECT become('tenant-7')` says that the function calls `set_config`. So the sources of functions that users
wrote are searched, once for each connection and again when one has changed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from oncemq.ledger.sql.column_types import MYSQL_NAMES

LOOK_AGAIN_AFTER: Final = 10.0
"""Seconds after which a connection asks again whether functions have changed."""
_KNOWN: Final = "oncemq_setting_routines"
_MOST_STATEMENTS: Final = 512

_WRITTEN = (
    "FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang "
    "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE l.lanname NOT IN ('internal', 'c') "
    "AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND p.prokind IN ('f', 'p', 'w')"
)
_STATE: Final = {
    "postgresql": f"SELECT md5(string_agg(p.oid::text || '.' || p.xmin::text, ',' ORDER BY p.oid)) {_WRITTEN}",
    "mysql": (
        "SELECT concat(count(*), ' ', max(LAST_ALTERED), ' ', coalesce(sum(crc32(concat(ROUTINE_SCHEMA, '.', "
        "ROUTINE_NAME, LAST_ALTERED))), 0)) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA <> 'sys'"
    ),
}
_SOURCES: Final = {
    # The sources of functions in standard SQL are in their definitions only.
    "postgresql": (
        "SELECT p.proname, CASE WHEN p.prosrc = '' THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prosrc END "
        + _WRITTEN
    ),
    "mysql": (
        "SELECT ROUTINE_NAME, ROUTINE_DEFINITION FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA <> 'sys'"
    ),
}
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r"([A-Za-z_][\w$]*)[\"`]?\s*\(")
_BEGINS = r"(?:^|;|\b(?:begin|then|else|loop|do|atomic)\b)\s*"
_SETS: Final = {
    "postgresql": re.compile(
        r"\b(?:set_config|setseed|pg_notify|dblink\w*|pg_(?:try_)?advisory_(?:lock|unlock)\w*|execute|spi_\w+)\b"
        rf"|\btemp(?:orary)?\s+(?:table|view|sequence)\b|{_BEGINS}(?:set|reset|discard|listen|unlisten|prepare)\b",
        re.IGNORECASE,
    ),
    "mysql": re.compile(
        r"@|\b(?:get_lock|release_(?:all_)?locks?|last_insert_id\s*\(\s*[^)\s])|\btemporary\s+table\b"
        rf"|{_BEGINS}set\s+(?:session|global|local|names|character|transaction|role|default|password)\b",
        re.IGNORECASE,
    ),
}
_ASSIGNED = re.compile(rf"{_BEGINS}set\s+`?([\w.]+)`?\s*:?=", re.IGNORECASE)
_DECLARED = re.compile(r"\bdeclare\s+(`?\w+`?(?:\s*,\s*`?\w+`?)*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Known:
    asked: float
    state: str | None
    names: frozenset[str]


def setting_routines(connection: Connection, now: float) -> frozenset[str]:
    """Return the names, in small letters, of functions that may change settings of a connection.

    Args:
        connection: in a transaction; what was found is kept as long as the driver's connection.
        now: monotonic seconds.

    Raises:
        DBAPIError: the connection is lost.
    """
    dialect = "mysql" if connection.dialect.name in MYSQL_NAMES else connection.dialect.name
    if dialect not in _STATE:
        return frozenset()
    known: _Known | None = connection.info.get(_KNOWN)
    if known is None or now - known.asked >= LOOK_AGAIN_AFTER:
        try:
            with connection.begin_nested():
                known = _found(connection, dialect, known, now)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            known = _Known(now, None, frozenset())  # the database's user may not read them
        connection.info[_KNOWN] = known
    return known.names


def _found(connection: Connection, dialect: str, known: _Known | None, now: float) -> _Known:
    state = connection.exec_driver_sql(_STATE[dialect]).scalar_one()
    if known is not None and known.state == state:
        return _Known(now, state, known.names)
    rows = connection.exec_driver_sql(_SOURCES[dialect]).all()
    return _Known(now, state, names_that_set([(name, source) for name, source in rows], dialect))


def names_that_set(sources: Iterable[tuple[str, str | None]], dialect: str) -> frozenset[str]:
    """Return the names of those that may change settings, themselves or through others that they call.

    Args:
        sources: names and texts; None = the text may not be read.
        dialect: `postgresql` or `mysql`.
    """
    found: set[str] = set()
    calls: dict[str, set[str]] = {}
    for name, text in sources:
        # Both ways: a comment may hide where a statement begins, and what looks like one may be part of a string.
        if text is None or _sets(text, dialect) or _sets(_COMMENT.sub(" ", text), dialect):
            found.add(name.lower())
        else:
            calls.setdefault(name.lower(), set()).update(called(text))
    return frozenset(_with_callers(found, calls))


def _sets(source: str, dialect: str) -> bool:
    if _SETS[dialect].search(source):
        return True
    if dialect == "postgresql":
        return False
    # In a routine of MySQL `SET x = …` changes a variable of its own, or one of the session.
    declared = {
        name.strip(" `\n\t").lower() for found in _DECLARED.findall(source) for name in found.split(",")
    }
    targets = {name.lower() for name in _ASSIGNED.findall(source)}
    return any(target not in declared and not target.startswith("new.") for target in targets)


def _with_callers(found: set[str], calls: Mapping[str, set[str]]) -> set[str]:
    while more := {name for name, names in calls.items() if name not in found and names & found}:
        found |= more
    return found


@lru_cache(maxsize=_MOST_STATEMENTS)
def called(statement: str) -> frozenset[str]:
    """Return the names, in small letters, of what a statement may call; repeated statements are analysed once."""
    return frozenset(name.lower() for name in _CALLED.findall(statement))
