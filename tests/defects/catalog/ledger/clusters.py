"""Defects of databases of several nodes: what is committed on one is seen on all, and their locks are tried."""

from defects.defect import Defect, Edit

GALERA = "tests/scenarios/clusters/test_galera.py"
TRIED = "tests/unit/ledger/database/test_side_by_side.py"

DEFECTS = (
    Defect(
        "galera-read-too-early",
        "On a Galera cluster a statement sees what any node has committed before.",
        [
            Edit(
                "framework/oncemq/ledger/database/galera.py",
                "_EVERY_STATEMENT: Final = 7",
                "_EVERY_STATEMENT: Final = 0",
            )
        ],
        [f"{GALERA}::test_a_commit_on_one_node_is_seen_on_the_next"],
    ),
    Defect(
        "refused-commit-hidden",
        "A refused COMMIT is what a transaction fails with, not the setting that could not be restored behind it.",
        [
            Edit(
                "framework/oncemq/ledger/sql/lock_waits.py",
                "            except SQLAlchemyError:\n",
                "            except TypeError:\n",
            )
        ],
        ["tests/unit/ledger/sql/test_lock_waits.py::test_why_a_transaction_failed_is_not_hidden"],
    ),
    Defect(
        "locks-not-tried",
        "A database that accepts an advisory lock and locks nothing is refused.",
        [
            Edit(
                "framework/oncemq/ledger/database/side_by_side.py",
                "    if other.scalar(_TRY_ADVISORY):\n",
                "    if other.scalar(_TRY_ADVISORY) is None:\n",
            )
        ],
        [f"{TRIED}::test_locks_that_lock_nothing_are_refused[advisory]"],
    ),
    Defect(
        "row-locks-not-tried",
        "A database that lets two transactions lock the same row is refused.",
        [
            Edit(
                "framework/oncemq/ledger/database/side_by_side.py",
                "    if other.execute(rows.with_for_update(skip_locked=True)).all():\n",
                "    if other.execute(rows.with_for_update(skip_locked=True)).all() is None:\n",
            )
        ],
        [f"{TRIED}::test_locks_that_lock_nothing_are_refused[rows]"],
    ),
)
