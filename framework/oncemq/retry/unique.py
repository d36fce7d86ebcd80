"""Reports a violated unique constraint of the user's tables, alike for every database: table, columns, values."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ExceptionContext
from sqlalchemy.exc import IntegrityError

from oncemq.errors import OnceMQError
from oncemq.retry.classify import is_unique_violation

Look = Callable[[str], Sequence[tuple[str, str]]]
"""Returns (table, column) for each column of an index, by the index's name and in its order."""

_POSTGRESQL = re.compile(
    r"\((?P<columns>.*)\)=\((?P<values>.*)\)", re.DOTALL
)  # the surrounding text is localized
_MYSQL = re.compile(r"'(?P<values>.*)'.* '(?P<key>[^']*)'", re.DOTALL)
_SQLITE = re.compile(r"UNIQUE constraint failed: (?P<columns>(?!index ').*)")
_INTO = re.compile(
    r"\s*(?:INSERT\s+(?:IGNORE\s+)?INTO|REPLACE\s+INTO|UPDATE)\s+(?P<table>(?:[`\"]?[\w$]+[`\"]?\.)*[`\"]?[\w$]+[`\"]?)",
    re.IGNORECASE,
)


class UniqueViolation(IntegrityError, OnceMQError):
    """A row with these unique values exists already; a kind of SQLAlchemy's IntegrityError, so either can be caught.

    Attributes:
        table: the table's name; empty if the database does not report it.
        columns: those of the constraint, in its order; empty if the database does not report them.
        values: of these columns, as the database shows them; empty if it does not.
    """

    speaks_for_itself = True
    """The driver's text contains values; see `oncemq.common.error_text.describe`."""

    def __init__(
        self, error: IntegrityError, table: str, columns: Sequence[str] = (), values: Sequence[str] = ()
    ) -> None:
        super().__init__(
            error.statement,
            error.params,
            error.orig,  # type: ignore[arg-type]
            error.hide_parameters,
            error.connection_invalidated,
            error.code,
            error.ismulti,
        )
        self.table = table
        self.columns = tuple(columns)
        self.values = tuple(values)

    def __str__(self) -> str:
        """Return text without values: readers of the error may not be allowed to see them."""
        named = f" with the same {', '.join(self.columns)}" if self.columns else ""
        return f"{self.table or 'the table'} has a row{named} already"


def unique_violation_of(error: BaseException, look: Look | None = None) -> UniqueViolation | None:
    """Return the violated unique constraint behind `error`; None if the error is another one.

    Args:
        error: SQLAlchemy's error.
        look: reads an index from the database; MySQL and MariaDB do not name the columns themselves.
    """
    if isinstance(error, UniqueViolation):
        return error
    if not isinstance(error, IntegrityError) or not is_unique_violation(error):
        return None
    original: Any = error.orig
    table = _table_of(error.statement or "")
    diagnosis = getattr(original, "diag", None)
    if diagnosis is not None:
        columns, values = _of_postgresql(diagnosis.message_detail or "")
        return UniqueViolation(error, diagnosis.table_name or table, columns, values)
    if found := _SQLITE.fullmatch(str(original)):
        names = [name.rpartition(".") for name in found["columns"].split(", ")]
        return UniqueViolation(error, names[0][0] or table, [name for _, _, name in names])
    return _of_mysql(error, table, look)


def converting(context: ExceptionContext) -> BaseException | None:
    """Replace the error of a violated unique constraint; for SQLAlchemy's event `handle_error`."""
    error = context.sqlalchemy_exception
    if error is None:
        return None
    return unique_violation_of(error, lambda name: _index(context, name))


def _of_postgresql(detail: str) -> tuple[list[str], list[str]]:
    found = _POSTGRESQL.search(detail)
    if found is None:
        return [], []
    columns = [name.strip('"') for name in found["columns"].split(", ")]
    values = [found["values"]] if len(columns) == 1 else found["values"].split(", ")
    return columns, values if len(values) == len(columns) else []


def _of_mysql(error: IntegrityError, table: str, look: Look | None) -> UniqueViolation:
    found = _MYSQL.search(str(error.orig.args[-1] if error.orig is not None and error.orig.args else ""))
    if found is None or look is None:
        return UniqueViolation(error, table)
    rows = [row for row in look(found["key"].rpartition(".")[2]) if not table or row[0] == table]
    columns = [column for _, column in rows]
    values = [found["values"]] if len(columns) == 1 else found["values"].split("-")
    return UniqueViolation(
        error, table or (rows[0][0] if rows else ""), columns, values if len(values) == len(columns) else []
    )


def _table_of(statement: str) -> str:
    found = _INTO.match(statement)
    return found["table"].rpartition(".")[2].strip('`"') if found else ""


def _index(context: ExceptionContext, name: str) -> Sequence[tuple[str, str]]:
    """Query through the driver itself: SQLAlchemy is handling an error at this point."""
    # Uses the failed cursor: a handler that takes the driver's connection itself would have to run alone.
    used = getattr(context.execution_context, "cursor", None)
    # In an event loop the driver's own methods are coroutines; SQLAlchemy's adapted connection awaits them.
    driver = getattr(used, "_adapt_connection", None) or getattr(used, "connection", None)
    if driver is None:
        if context.connection is None:
            return []
        driver = context.connection.connection
    cursor = driver.cursor()
    try:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.statistics"
            " WHERE table_schema = database() AND non_unique = 0 AND index_name = %s ORDER BY table_name, seq_in_index",
            (name,),
        )
        return [(str(table), str(column)) for table, column in cursor.fetchall()]
    except Exception:
        return []
    finally:
        cursor.close()
