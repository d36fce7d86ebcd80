"""Reads what a handler's statement is: a query, a change, what sets something for later statements, or an end of the transaction."""

import re
from enum import Enum
from functools import lru_cache
from typing import Final


class Kind(Enum):
    """What a statement does to those that come after it."""

    READ = "read"
    """It changes nothing."""
    WRITE = "write"
    """It may change rows or tables, which ends with the transaction."""
    SETS = "sets"
    """It may leave settings, locks or names on the connection, or what it does cannot be seen from its text."""
    ENDS = "ends"
    """It ends the transaction."""


_READS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC"})
_PLAIN: Final = _READS | {
    *("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "SAVEPOINT", "RELEASE", "ROLLBACK", "TRUNCATE"),
    *("LOCK", "CREATE", "ALTER", "DROP", "COMMENT", "ANALYZE", "REINDEX", "GRANT", "REVOKE", "REFRESH"),
}
_ENDS_TRANSACTION: Final = frozenset({"COMMIT", "ROLLBACK", "BEGIN", "START", "END", "ABORT"})
_ENDS_IT_ON_MYSQL: Final = frozenset(
    {
        *("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "LOCK", "UNLOCK", "GRANT", "REVOKE"),
        *("ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "XA"),
    }
)
_MYSQL: Final = frozenset({"mysql", "mariadb"})
_TEMPORARY: Final = frozenset({"TEMP", "TEMPORARY"})
_BEFORE_WORD = re.compile(r"(?:[\s;(]|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*(?!!).*?\*/|/\*!\d*)+", re.DOTALL)
"""What may stand before a statement's first word; MySQL runs what is inside `/*! … */`."""
_SETS = re.compile(
    r";\s*[^\s;]|/\*[!M]|:=|\binto\s+(?:local\s+|global\s+)?(?:temp|@)|\btemp(?:orary)?\s+(?:table|view|sequence)"
    r"|\b(?:set_config|pg_notify|setseed|dblink\w*|get_lock|release_(?:all_)?locks?|last_insert_id\s*\(\s*[^)\s]"
    r"|pg_(?:try_)?advisory_(?:lock|unlock)\w*)\b|\blast_insert_id\s*\(\s*[^)\s]",
    re.IGNORECASE,
)
"""What leaves something on the connection in a statement that looks plain; a second statement is one that is not read."""
_WRITES = re.compile(r"\b(?:insert|update|delete|merge|replace|into)\b", re.IGNORECASE)
_CALL = re.compile(r"([A-Za-z_][\w.$]*)\s*\(")
_HARMLESS_WORDS: Final = (
    "abs all and any array as avg between bool_and bool_or by case cast ceil ceiling char_length coalesce concat "
    "count current_date current_timestamp date date_trunc dense_rank distinct else except exists extract filter "
    "floor from greatest group having ifnull in instr intersect interval is join json_agg json_extract lag lead "
    "least left length like limit lower ltrim max min mod not now nullif of offset on or order over partition "
    "position power quote rank recursive replace right round row row_number rtrim select set sqrt string_agg "
    "substr substring sum then timestamp to_char trim union unnest upper using values varchar char decimal "
    "numeric when where with within"
)
_HARMLESS: Final = frozenset(_HARMLESS_WORDS.split())
_MOST_KNOWN: Final = 512


def first_words(statement: str) -> tuple[str, str]:
    """Return the first two words in capitals, empty where there are none; comments before them do not count."""
    if not statement[:1].isalpha():
        statement = statement[found.end() :] if (found := _BEFORE_WORD.match(statement)) else statement
    words = statement[:40].upper().replace(";", " ").replace("=", " ").split(None, 2)
    return (words[0] if words else ""), (words[1] if len(words) > 1 else "")


def ends_transaction(word: str, following: str, dialect: str) -> bool:
    """Return whether a statement that begins with these words ends the transaction, or stands for its end."""
    if word in _ENDS_TRANSACTION:
        return following != "TO"
    if dialect in _MYSQL:
        return (word in _ENDS_IT_ON_MYSQL and following != "TEMPORARY") or (word, following) == (
            "SET",
            "AUTOCOMMIT",
        )
    return (word, following) == ("PREPARE", "TRANSACTION")


@lru_cache(maxsize=_MOST_KNOWN)
def kind_of(statement: str, dialect: str) -> Kind:
    """Return what a statement does to those after it; what is sent again and again is read once."""
    word, following = first_words(statement)
    if ends_transaction(word, following, dialect):
        return Kind.ENDS
    if word not in _PLAIN or following in _TEMPORARY or _SETS.search(statement):
        return Kind.SETS
    if word not in _READS or _WRITES.search(statement):
        return Kind.WRITE
    called = {name.lower() for name in _CALL.findall(statement)}
    return Kind.READ if called <= _HARMLESS else Kind.WRITE
