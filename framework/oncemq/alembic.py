"""Keeps Alembic's autogenerate from proposing to drop the ledger's tables.

In env.py: `context.configure(..., include_name=oncemq.alembic.include_name)`.
"""

from collections.abc import Mapping

from oncemq.ledger.sql.tables import PREFIX


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
