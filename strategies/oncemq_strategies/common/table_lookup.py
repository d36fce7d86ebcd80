"""Looks up the user's tables once: at start or at the first message."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.strategy import Scope
from oncemq.errors import ConfigError
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.user_tables import UnfitTable

_SPELLINGS = (
    "a message that spells a row's value otherwise becomes a dead letter; if such values are different things, "
    'give the column a collation that neither folds nor pads (utf8mb4_nopad_bin, "C", BINARY)'
)


class _Compares(Protocol):
    """A lookup result with columns whose values name rows."""

    @property
    def folds(self) -> Sequence[str]:
        """Return the differences ignored by each column that does not compare character by character."""
        ...


T = TypeVar("T", bound=_Compares)


class LookedUp(Generic[T]):
    """A result found in the user's database, cached for good.

    Args:
        scope: given to the strategy.
        table: the table's name, for errors.
        where: the option that names it, for errors.
        look: finds it; raises UnfitTable when the table cannot be used.
        advice: for that error.
    """

    def __init__(
        self, scope: Scope, table: str, where: str, look: Callable[[Connection], T], advice: str = ""
    ) -> None:
        self._scope = scope
        self._table = table
        self._where = where
        self._look = look
        self._advice = advice
        self._found: T | None = None

    def check(self, unfit: Callable[[T], str] = lambda _found: "", advice: str = "") -> list[Problem]:
        """Return why the table cannot be used, and a warning where its keys are not compared character by character.

        Args:
            unfit: returns why the result cannot be used; empty if it can.
            advice: for that problem.
        """
        if self._scope.engine is None:
            return []
        try:
            with self._scope.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
                found = self._find(connection)
                why = unfit(found)
        except UnfitTable as error:
            return [Problem(str(error), self._advice, self._where)]
        except SQLAlchemyError as error:
            text = f"table {self._table} cannot be looked up: {type(error).__name__}"
            return [Problem(text, where=self._where)]
        folds = [Problem(words, _SPELLINGS, self._where, Severity.WARNING) for words in found.folds]
        return [Problem(why, advice, self._where), *folds] if why else folds

    def get(self, connection: Connection) -> T:
        """Return the result, looking it up on first use.

        Raises:
            ConfigError: the table cannot be used.
        """
        if self._found is not None:
            return self._found
        try:
            return self._find(connection)
        except UnfitTable as error:
            raise ConfigError([Problem(str(error), where=self._where)]) from None

    def _find(self, connection: Connection) -> T:
        # Without a lock: on an event loop another unit may look while this one waits for the database.
        found = self._found
        if found is None:
            found = self._found = self._look(connection)
        return found
