"""Matches a unit's values to rows by the database's comparison, never by Python's alone.

Python's comparison is used where the database's is known to be the same. Columns that compare different texts as equal
(`utf8mb4_general_ci`, `citext`, `COLLATE NOCASE` …) cost one more statement for all values of a unit, and only if
a value has no row with exactly its spelling.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    TEXT,
    Column,
    ColumnElement,
    Connection,
    Table,
    any_,
    bindparam,
    case,
    cast,
    func,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import UserDefinedType

from oncemq.ledger.sql.collations import Comparison, comparison_of, groups, ignored

Values = tuple[Any, ...]
"""A value for each of the compared columns."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Values that have a row, and values that are two spellings of the same row.

    Args:
        rows: the row's position in `found`, for each value that has a row.
        respelled: the row's spelling, for each value whose row is spelled differently.
        earlier: an equal earlier value without a row, for each value that has such a value.
    """

    rows: Mapping[Values, int]
    respelled: Mapping[Values, Values]
    earlier: Mapping[Values, Values]


class Equality:
    """The database's comparison of values of some columns of a table, read once.

    Args:
        connection: for reading it.
        table: the columns' table.
        columns: the compared columns.
    """

    def __init__(self, connection: Connection, table: Table, columns: Sequence[Column[Any]]) -> None:
        self._table = table
        self._columns = columns
        self._compared = [comparison_of(connection, table, column) for column in columns]
        self._binds = [column.type.bind_processor(connection.dialect) for column in columns]
        self._folding = [place for place, compared in enumerate(self._compared) if not compared.exact]
        self._typed = any(compared.type for compared in self._compared)
        self._folds = self._describe(connection)

    @property
    def folds(self) -> Sequence[str]:
        """Return descriptions of the differences ignored by columns that do not compare character by character."""
        return self._folds

    def fit(self, values: Sequence[Any]) -> None:
        """Refuse values that the columns would truncate.

        Raises:
            ValueError: says which and why.
        """
        for column, compared, value in zip(self._columns, self._compared, values, strict=True):
            try:
                compared.fit(value)
            except ValueError as error:
                raise ValueError(f"{_shown(value)} does not fit column {column}: it {error}") from None

    def among(self, values: Collection[Values]) -> ColumnElement[bool]:
        """Return the condition for the rows of these values."""
        if (
            self._typed
        ):  # compared as plain text, a column of type char(n) or citext has another equality and no index
            return self._among_arrays(values)
        if len(self._columns) == 1:
            return self._columns[0].in_([value for (value,) in values])
        return tuple_(*self._columns).in_(list(values))

    def match(
        self, connection: Connection, values: Collection[Values], found: Sequence[Sequence[Any]]
    ) -> Matches:
        """Return which value belongs to which row.

        Args:
            connection: the transaction.
            values: in arrival order, each once.
            found: the columns' values of the rows that `among(values)` matched; each row has a value.
        """
        spelled = [self._spelled(row) for row in found]
        exact = {row: place for place, row in enumerate(spelled)}
        rows = {value: exact[value] for value in values if value in exact}
        if len(rows) == len(values) == len(found):
            return Matches(rows, {}, {})
        earlier: dict[Values, Values] = {}
        if self._folding:
            known = [*spelled, *(value for value in values if value not in exact)]
            for value, first in zip(known, self.alike(connection, known), strict=True):
                if first < len(spelled):
                    rows[value] = first
                elif known[first] != value:
                    earlier[value] = known[first]
        claimed = set(rows.values())
        unclaimed = [place for place in range(len(found)) if place not in claimed]
        if unclaimed:
            self._ask_the_rows(connection, values, [spelled[place] for place in unclaimed], exact, rows)
        asked = {value: rows[value] for value in values if value in rows}
        return Matches(
            asked,
            {value: spelled[place] for value, place in asked.items() if spelled[place] != value},
            {value: first for value, first in earlier.items() if value not in asked},
        )

    def alike(self, connection: Connection, values: Sequence[Values]) -> list[int]:
        """Return for each value the position of the first equal value in the database, in one statement."""
        plain = [tuple(v for place, v in enumerate(value) if place not in self._folding) for value in values]
        groups_of = [0] * len(values)
        if self._folding:
            texts = [[self._bound(value, place) for place in self._folding] for value in values]
            folding = [self._compared[place] for place in self._folding]
            groups_of = groups(connection, self._table, folding, texts)
        first: dict[Any, int] = {}
        return [
            first.setdefault((group, rest), place)
            for place, (group, rest) in enumerate(zip(groups_of, plain, strict=True))
        ]

    def same(self, connection: Connection, here: Any, wanted: Any) -> bool:
        """Return whether two values of the only column are equal in the database; NULL equals NULL."""
        if here is None or wanted is None:
            return here is wanted
        [here], [wanted] = self._spelled([here]), self._spelled([wanted])
        if here == wanted:
            return True
        texts = isinstance(here, str) and isinstance(wanted, str)
        return texts and bool(self._folding) and self.alike(connection, [(here,), (wanted,)])[1] == 0

    def _spelled(self, values: Sequence[Any]) -> Values:
        """Return a row's values as they were given: fixed-width columns return them padded with blanks."""
        return tuple(
            value.rstrip(" ") if compared.padded and isinstance(value, str) else value
            for value, compared in zip(values, self._compared, strict=True)
        )

    def _among_arrays(self, values: Collection[Values]) -> ColumnElement[bool]:
        arrays = [
            _array([self._bound(value, place) for value in values], compared)
            if compared.type
            else bindparam(None, [value[place] for value in values], type_=ARRAY(column.type))
            for place, (column, compared) in enumerate(zip(self._columns, self._compared, strict=True))
        ]
        if len(arrays) == 1:
            return self._columns[0] == any_(arrays[0])
        names = [f"v{place}" for place in range(len(arrays))]
        given = func.unnest(*arrays).table_valued(*names).render_derived()
        return tuple_(*self._columns).in_(select(*(given.c[name] for name in names)))

    def _bound(self, value: Values, place: int) -> Any:
        process = self._binds[place]
        return value[place] if process is None else process(value[place])

    def _ask_the_rows(
        self,
        connection: Connection,
        values: Collection[Values],
        unclaimed: Sequence[Values],
        places: Mapping[Values, int],
        rows: dict[Values, int],
    ) -> None:
        """Match values of rows that neither Python nor `alike` could match, by querying the rows themselves."""
        known = list(values)
        which = case(*((self.among([value]), number) for number, value in enumerate(known)))
        for *row, number in connection.execute(select(*self._columns, which).where(self.among(unclaimed))):
            if number is not None:
                rows[known[number]] = places[self._spelled(row)]

    def _describe(self, connection: Connection) -> list[str]:
        said = []
        for column, compared in zip(self._columns, self._compared, strict=True):
            words = ignored(connection, self._table, compared)
            if words or not compared.exact:
                said.append(
                    f"column {column} ignores {' and '.join(words) or 'some differences'} ({compared.name})"
                )
        return said


class _Named(UserDefinedType[Any]):
    """A type of the database by its own name."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Return the name."""
        return self.name


def _array(values: Sequence[Any], compared: Comparison) -> ColumnElement[Any]:
    """Return texts as an array of the column's own type, without its length: a cast with a length truncates them."""
    plain = bindparam(None, list(values), type_=ARRAY(TEXT))
    return cast(plain, ARRAY(_Named(compared.type)))


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
