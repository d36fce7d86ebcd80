"""Defects of generations: what keeps a rotation from letting a duplicate through, and an expiry from being too early."""

from defects.defect import Defect, Edit

ROTATION = "framework/oncemq/ledger/generations/rotation.py"
BULK = "framework/oncemq/ledger/generations/bulk.py"
BARRIER = "tests/unit/ledger/generations/test_barrier.py"

DEFECTS = (
    Defect(
        "rotation-without-barrier",
        "A generation is sealed only after every transaction that has inserted into it.",
        [
            Edit(
                ROTATION,
                '            connection.execute(text(f"LOCK TABLE {table_name(number)} IN SHARE ROW EXCLUSIVE MODE"))\n'
                '            done("barrier")\n',
                '            done("barrier")\n',
            )
        ],
        [f"{BARRIER}::test_a_rotation_waits_for_units_that_have_inserted"],
    ),
    Defect(
        "sealed-generation-written",
        "A process whose list is old inserts nothing into a sealed generation.",
        [Edit(BULK, "WHERE id = :generation AND sealed_at IS NULL", "WHERE id = :generation")],
        [f"{BARRIER}::test_copies_in_processes_with_old_and_new_lists_take_effect_once"],
    ),
    Defect(
        "generation-retired-inside-keep",
        "A generation is looked up until every record of it is older than `keep`.",
        [Edit(ROTATION, "            _T.sealed_at <= expired,\n", "            _T.opened_at <= expired,\n")],
        [f"{BARRIER}::test_a_generation_inside_keep_stays"],
    ),
    Defect(
        "generation-dropped-at-once",
        "Running processes have read the list again before a retired table is dropped.",
        [Edit(ROTATION, "_T.retired_at <= waited", "_T.retired_at.is_not(None)")],
        [f"{BARRIER}::test_a_retired_generation_is_not_dropped_at_once"],
    ),
    Defect(
        "old-table-written-beside-generations",
        "A process without the option cannot write records where the others no longer look.",
        [Edit(ROTATION, "            _refuse_in_old_table(connection, consumer)\n", "            pass\n")],
        [f"{BARRIER}::test_a_process_without_the_option_is_refused"],
    ),
)
