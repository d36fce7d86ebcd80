"""Maps SQLite errors to the broker's: one table, with advice for each."""

import sqlite3

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable


class StoreGone(BrokerUnavailable):
    """The file under an open connection is gone or broken; only a new connection can help."""


_MEANING: dict[int, tuple[type[BrokerError], str]] = {
    sqlite3.SQLITE_BUSY: (
        BrokerUnavailable,
        "another process has been writing to it for longer than lock_timeout",
    ),
    sqlite3.SQLITE_LOCKED: (
        BrokerUnavailable,
        "another connection has been writing to it for longer than lock_timeout",
    ),
    sqlite3.SQLITE_FULL: (BrokerUnavailable, "the disk is full; free some space, nothing was changed"),
    sqlite3.SQLITE_NOMEM: (BrokerUnavailable, "there is not enough memory"),
    sqlite3.SQLITE_IOERR: (StoreGone, "reading or writing failed; look at the disk"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreGone,
        "it cannot be opened; its folder must exist and be writable (four slashes start an absolute path)",
    ),
    sqlite3.SQLITE_READONLY_DBMOVED: (StoreGone, "the file was moved away"),
    sqlite3.SQLITE_PERM: (BrokerRefused, "this user may not write to it"),
    sqlite3.SQLITE_READONLY: (BrokerRefused, "this user may not write to it or to its folder"),
    sqlite3.SQLITE_NOTADB: (BrokerRefused, "the file is not a SQLite database; name another file"),
    sqlite3.SQLITE_CORRUPT: (BrokerRefused, "the file is damaged; restore it from a copy or name a new file"),
    sqlite3.SQLITE_TOOBIG: (BrokerRefused, "the message is larger than SQLite can store"),
}


def broker_error(error: sqlite3.Error, place: str) -> BrokerError:
    """Return `error` as one of ours, naming the broker's place."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    found = _MEANING.get(code) or _MEANING.get(code & 0xFF)  # the low byte is the kind, the rest details
    kind, meaning = found or (StoreGone, "SQLite reports an error")
    return kind(f"embedded broker {place}: {meaning} ({error})")
