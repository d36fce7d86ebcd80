"""Defects of the one equality: which row a message means is decided by the database's comparison."""

from defects.defect import Defect, Edit

EQUALITY = "framework/oncemq/ledger/sql/equality.py"
COLLATIONS = "framework/oncemq/ledger/sql/collations.py"
SUITE = "tests/suites/strategies/test_collations.py::TestCollations"
UNIT = "tests/unit/ledger/sql/test_equality.py"
GENERAL_CI = "mariadb-VARCHAR(40)_COLLATE_utf8mb4_general_ci"

DEFECTS = (
    Defect(
        "row-dropped-by-pythons-comparison",
        "A row that the database returned for a message's value is never dropped.",
        [
            Edit(
                EQUALITY,
                "        if self._folding:\n            known",
                "        if False:\n            known",
            ),
            Edit(EQUALITY, "        if unclaimed:\n", "        if False:\n"),
        ],
        [
            f"{UNIT}::test_a_row_is_found_by_every_spelling_that_the_database_takes_for_it",
            f"{SUITE}::test_another_spelling_of_a_row_is_a_conflict",
        ],
    ),
    Defect(
        "other-spelling-is-a-duplicate",
        "Another spelling of a row's values is a Conflict, never a duplicate of the row's message.",
        [
            Edit(
                "strategies/oncemq_strategies/unique_key/constraint_records.py",
                "        if values in notes.found.respelled:\n            return conflict",
                "        if False:\n            return conflict",
            )
        ],
        [f"{SUITE}::test_another_spelling_of_a_row_is_a_conflict[{GENERAL_CI}-unique_key-table]"],
    ),
    Defect(
        "other-spelling-moves-a-strangers-row",
        "A message whose key is another spelling of a row's does not touch that row.",
        [
            Edit(
                "strategies/oncemq_strategies/common/entity_rows.py",
                "        if why:\n            return conflict(why)\n",
                "",
            )
        ],
        [f"{SUITE}::test_another_spelling_of_a_row_is_a_conflict[{GENERAL_CI}-state_machine]"],
    ),
    Defect(
        "two-spellings-in-one-unit",
        "Two values of one unit that the database holds equal are seen as such before both handlers run.",
        [Edit(EQUALITY, "                    earlier[value] = known[first]\n", "                    pass\n")],
        [f"{UNIT}::test_values_without_a_row_are_compared_with_each_other"],
    ),
    Defect(
        "values-cut-to-the-columns-width",
        "A value that the column would cut is refused, since it would come back as another one.",
        [
            Edit(
                COLLATIONS, "        if not isinstance(value, str):\n            return\n", "        return\n"
            )
        ],
        [f"{UNIT}::test_values_that_a_column_would_cut_are_refused"],
    ),
    Defect(
        "copy-in-the-call-of-its-first",
        "A copy waits until its first one has run, and is not handed to the handler beside it.",
        [
            Edit(
                "framework/oncemq/engine/transaction/batch_loop.py",
                "if joins and remembers and item.envelope.identity in identities:",
                "if False:",
            )
        ],
        ["tests/unit/engine/transaction/test_batch_handlers.py::test_a_copy_joins_its_pending_first_one"],
    ),
)
