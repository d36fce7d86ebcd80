"""How the ledger's tables came to be what they are: one entry for each version after the first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Dialect


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from the version before to `version`; tables that are new need none, they are created.

    Args:
        version: the version that the ledger has afterwards.
        what: what changes, in a few words.
        statements: the SQL for a dialect; each must bear running again after a failure half-way.
    """

    version: int
    what: str
    statements: Callable[[Dialect], Sequence[str]]


FIRST_VERSION = 1

MIGRATIONS: tuple[Migration, ...] = ()
"""In order of version, without gaps, beginning with `FIRST_VERSION + 1`."""
