"""Defects of strategies that read the user's rows between two handlers of a transaction."""

from defects.defect import Defect, Edit

PRECONDITION = "strategies/oncemq_strategies/precondition.py"
TESTS = "tests/unit/strategies/test_precondition.py"
BATCHES = "tests/unit/engine/transaction/test_batch_handlers.py"
CHAINS = "tests/unit/engine/base/test_strategy_chain.py"

DEFECTS = (
    Defect(
        "row-compared-as-it-was",
        "A precondition compares the row as earlier messages of the transaction left it.",
        [Edit(PRECONDITION, "            notes.known.clear()\n", "")],
        [
            f"{TESTS}::test_a_unit_has_many_messages_of_a_key",
            f"{TESTS}::test_neighbours_do_not_disturb",
        ],
    ),
    Defect(
        "row-compared-before-its-insert",
        "What earlier handlers only added is in the database before a strategy reads there.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "            if started and reads_between:\n                frame.bring(run)\n",
                "",
            )
        ],
        [f"{TESTS}::test_a_row_that_an_earlier_message_only_added_is_compared"],
    ),
    Defect(
        "unchanged-row-passed-on",
        "A message that left its row unchanged is refused, also if the next one changes the row.",
        [
            Edit(
                PRECONDITION,
                "        values = {value} if ran is None else {value, notes.found.values[ran]}\n",
                "        ran = None if value != notes.found.values.get(ran) else ran\n        values = {value}\n",
            )
        ],
        [f"{TESTS}::test_who_left_its_row_is_refused_though_a_neighbour_changes_it"],
    ),
    Defect(
        "appeared-row-unlocked",
        "A row that appears after the others were locked is locked, too, before it is compared.",
        [
            Edit(
                PRECONDITION,
                "lock = RowLock.none() if values <= notes.locked else RowLock()",
                "lock = RowLock.none()",
            )
        ],
        [f"{TESTS}::test_a_row_that_appears_between_is_locked"],
    ),
    Defect(
        "batch-compared-once",
        "A batch handler gets one message in a call where a strategy reads between two messages.",
        [
            Edit(
                "framework/oncemq/engine/transaction/batch_loop.py",
                "if (again and not joins) or (together and reads_between):",
                "if again and not joins:",
            )
        ],
        [f"{BATCHES}::test_a_strategy_that_reads_between_messages_gets_one_in_a_call"],
    ),
    Defect(
        "half-written-columns-read",
        "A strategy that reads between messages does not find there what another one writes at the end of a unit.",
        [
            Edit(
                "framework/oncemq/engine/base/strategy_chain.py",
                "        if self.reads_between and self.writes:\n",
                "        if False:\n",
            )
        ],
        [f"{CHAINS}::test_what_reads_between_handlers_finds_no_half_written_columns"],
    ),
)
