"""What a handler's statement is, by its first words: a query, or an end of the transaction that is not the handler's."""

import re

READS = frozenset({"SELECT", "WITH"})
_ENDS_TRANSACTION = frozenset({"COMMIT", "ROLLBACK", "BEGIN", "START", "END", "ABORT"})
_ENDS_IT_ON_MYSQL = frozenset(
    {
        *("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "LOCK", "UNLOCK", "GRANT", "REVOKE"),
        *("ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "XA"),
    }
)
_BEFORE_WORD = re.compile(r"(?:[\s;(]|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*(?!!).*?\*/|/\*!\d*)+", re.DOTALL)
"""What may stand before a statement's first word; MySQL runs what is inside `/*! … */`."""


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
    if dialect in {"mysql", "mariadb"}:
        return (word in _ENDS_IT_ON_MYSQL and following != "TEMPORARY") or (word, following) == (
            "SET",
            "AUTOCOMMIT",
        )
    return (word, following) == ("PREPARE", "TRANSACTION")
