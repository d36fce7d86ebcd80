"""The ledger's tables beside migrations by Alembic: left alone by autogenerate, or a branch of the team's own revisions.

In env.py: `context.configure(..., include_name=oncemq.alembic.include_name)`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection

from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.sql.tables import PREFIX

LABEL = "oncemq"
"""Label of the branch of revisions."""

_MARK = re.compile(r"^# ledger: (\d+) ([0-9a-f]+)$", re.MULTILINE)
_TEMPLATE = '''"""OnceMQ's ledger, version {version}. Written by `oncemq tables alembic`."""
# ledger: {version} {tables}

import oncemq.alembic
from alembic import op

revision = "{revision}"
down_revision = {before!r}
branch_labels = {labels!r}
depends_on = None


def upgrade() -> None:
    """Create what is missing, and bring the rest to what the installed OnceMQ needs."""
    oncemq.alembic.upgrade(op.get_bind())


def downgrade() -> None:
    """Leave the ledger: without it redelivered messages would be applied again. `oncemq tables drop` drops it."""
'''


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """Return whether Alembic should look at a database object; False for the framework's tables.

    `oncemq tables create` and `oncemq tables upgrade` manage those.

    Args:
        name: the object's name.
        type_: "schema", "table", "column", "index", "unique_constraint" or "foreign_key_constraint".
        parent_names: the names of its parents, including "table_name".
    """
    table = name if type_ == "table" else parent_names.get("table_name")
    return not (table or "").startswith(PREFIX)


def upgrade(connection: Connection | None) -> list[str]:
    """Bring the ledger to what this version of OnceMQ needs, in the migration's transaction; returns a line for each step.

    Args:
        connection: what `op.get_bind()` returns; None where Alembic only prints statements.

    Raises:
        LedgerError: there is no connection, or the ledger is newer than this version of OnceMQ.
    """
    if connection is None:
        raise LedgerError(
            "Alembic is offline and the ledger needs a database: print its statements by `oncemq tables sql`"
        )
    return schema.upgrade_within(connection)


def write_revision(folder: Path) -> Path | None:
    """Write the next revision of the branch into a folder of revisions; returns its path, or None if nothing has changed."""
    version, tables = schema.mark()
    written = sorted(folder.glob(f"{LABEL}_*_ledger.py"))
    if written:
        found = _MARK.search(written[-1].read_text(encoding="utf-8"))
        if found and (int(found[1]), found[2]) == (version, tables):
            return None
    before = f"{LABEL}_{len(written):04}" if written else None
    revision = f"{LABEL}_{len(written) + 1:04}"
    path = folder / f"{revision}_ledger.py"
    labels = None if written else (LABEL,)
    path.write_text(
        _TEMPLATE.format(version=version, tables=tables, revision=revision, before=before, labels=labels),
        encoding="utf-8",
    )
    return path
