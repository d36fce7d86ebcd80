"""Columns that return exactly the stored value: text compared byte by byte, moments in UTC, on every database."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, LargeBinary, Text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

MYSQL_NAMES = frozenset({"mysql", "mariadb"})
"""Dialect names of the MySQL family."""


class ExactText(TypeDecorator[str]):
    """Text in which `a`, `A` and `a ` are three values.

    Args:
        size: maximum of bytes in UTF-8; MySQL and MariaDB need a limit for indexed columns.
    """

    impl = Text
    cache_ok = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return TEXT COLLATE "C", VARBINARY or TEXT."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TEXT(collation="C"))
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(
                mysql.VARBINARY(self.size)
            )  # every collation of MySQL folds or pads
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value for the driver."""
        return value.encode() if value is not None and dialect.name in MYSQL_NAMES else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the stored text."""
        return value.decode() if isinstance(value, bytes) else value


class LongText(TypeDecorator[str]):
    """Text of any length that is never compared, such as JSON or an error's text."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return LONGTEXT in utf8mb4 on MySQL and MariaDB, where plain TEXT ends at 64 KiB."""
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.LONGTEXT(charset="utf8mb4"))
        return dialect.type_descriptor(Text())


class Bytes(TypeDecorator[bytes]):
    """Raw bytes of any length, such as a message's body."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return LONGBLOB on MySQL and MariaDB, where plain BLOB ends at 64 KiB."""
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.LONGBLOB())
        return dialect.type_descriptor(LargeBinary())


class Token(TypeDecorator[bytes]):
    """Sixteen random bytes."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return VARBINARY(16) where a plain blob would be stored outside of its row."""
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.VARBINARY(16))
        return dialect.type_descriptor(LargeBinary())


class Moment(TypeDecorator[datetime]):
    """An aware moment, stored in UTC to the microsecond."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return TIMESTAMP WITH TIME ZONE, DATETIME(6) or SQLite's text form."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC, without its zone if the column has none."""
        if value is None or dialect.name == "postgresql":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the moment, aware, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def storable(words: str, most: int | None = None) -> str:
    """Return an error's text in a form that every database stores: NUL and lone surrogates are replaced.

    Args:
        words: the text of a handler's exception; may quote a message.
        most: maximum of bytes in UTF-8; None = no limit.
    """
    if words.isascii() and "\0" not in words:
        return words[:most]
    raw = words.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace")
    return raw[:most].decode(errors="ignore")
