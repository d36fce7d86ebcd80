"""Defects of judgement: whose fault a failure is, after errors, limits and crashes."""

from defects.defect import Defect, Edit

STILL = "tests/unit/engine/workers/test_standing_still.py"
CRASHES = "tests/unit/engine/crash/test_suspects.py"
APP = "tests/unit/engine/test_application.py"
BATCHES = "framework/oncemq/engine/transaction/batch_loop.py"
NAMED = "tests/suites/kit/test_bad_items.py"

DEFECTS = (
    Defect(
        "deadlock-costs-an-attempt",
        "Deadlocks and lock time-outs cost no attempt.",
        [
            Edit(
                "framework/oncemq/engine/base/error_verdicts.py",
                "frozenset({Fault.TRANSIENT, Fault.OFFLINE,",
                "frozenset({Fault.OFFLINE,",
            )
        ],
        [
            "tests/unit/engine/base/test_error_verdicts.py::test_the_databases_trouble_is_no_messages_fault",
            "tests/unit/engine/transaction/test_infrastructure.py::test_a_lock_time_out_charges_no_message",
        ],
    ),
    Defect(
        "deadlock-not-recognized",
        "MariaDB's deadlock is the database's trouble, not the data's.",
        [Edit("framework/oncemq/retry/classify.py", "    1213: Fault.TRANSIENT,", "    1213: Fault.DATA,")],
        ["tests/unit/retry/test_classify_real.py::test_a_deadlock_is_transient[mariadb]"],
    ),
    Defect(
        "read-only-not-recognized",
        "A MariaDB that became read-only pauses its consumers, and no message is charged for it.",
        [Edit("framework/oncemq/retry/classify.py", "    1290: Fault.OFFLINE,", "    1290: Fault.DATA,")],
        [
            "tests/scenarios/outages/test_read_only.py::test_a_read_only_database_pauses_and_charges_no_message[mariadb]"
        ],
    ),
    Defect(
        "read-only-passes-the-check",
        "A start on a read-only MariaDB is refused in words.",
        [Edit("framework/oncemq/ledger/database/rights.py", '{"25006", 1290, ', '{"25006", ')],
        [
            "tests/scenarios/outages/test_read_only.py::test_check_and_the_start_refuse_a_read_only_database[mariadb]"
        ],
    ),
    Defect(
        "outage-charged-at-last",
        "While nothing commits at all, no message is charged, however often it fails.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "        if self._lane.commits <= delivery.commits_at_failure:\n",
                "        if False:\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_infrastructure.py::test_while_nothing_succeeds_no_message_is_charged[sqlite-whole]"
        ],
    ),
    Defect(
        "poison-never-charged",
        "When others succeed meanwhile, an item's third failure in the database counts.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "if delivery.failures < _THIRD_COUNTS:",
                "if True:",
            )
        ],
        [
            "tests/unit/engine/transaction/test_infrastructure.py::test_the_third_lock_time_out_counts_while_others_succeed[sqlite-whole]"
        ],
    ),
    Defect(
        "halves-wait-for-locks",
        "A session that is idle in a transaction holds up only the messages that need its locks.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "        locked = is_lock_timeout(cause)\n",
                "        locked = False\n",
            )
        ],
        [f"{STILL}::test_messages_without_a_held_row_take_effect[postgresql]"],
    ),
    Defect(
        "short-looks-charged",
        "A lock that was not waited for is no lock time-out.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "        return not self._hurried or ",
                "        return True or ",
            )
        ],
        [f"{STILL}::test_a_message_met_locked_in_a_hurry_is_not_charged_soon[postgresql]"],
    ),
    Defect(
        "strategys-bug-charged",
        "A bug in a strategy pauses the consumer; no message is charged.",
        [
            Edit(
                "framework/oncemq/engine/transaction/open_transaction.py",
                "    raise as_engine_error(error, doing) from error\n",
                "    raise UnknownCulprit(describe(error)) from error\n",
            )
        ],
        ["tests/unit/engine/transaction/test_rescue.py::test_a_strategys_bug_charges_no_message"],
    ),
    Defect(
        "neighbour-blamed-for-flush",
        "When a flush fails on a neighbour's objects, the message that triggered it is not charged.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "        if call.frame.failed is not None:\n            raise call.frame.failed\n",
                "",
            )
        ],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_the_first_to_read_is_not_blamed_for_a_neighbours_row[sqlite-whole]"
        ],
    ),
    Defect(
        "crash-charged-to-the-neighbour",
        "A death is charged to exactly the message that was running.",
        [Edit("framework/oncemq/engine/crash/flight_recorder.py", "(entries[number - 1],)", "(entries[0],)")],
        [f"{CRASHES}::test_the_running_item_is_the_culprit"],
    ),
    Defect(
        "crash-while-committing-charged",
        "A death while the unit was committing charges no message.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "            self._recorder.index[0] = FLUSHING\n            flush(",
                "            flush(",
            )
        ],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_a_death_while_committing_has_no_culprit[sqlite-whole]"
        ],
    ),
    Defect(
        "crashes-not-counted",
        "Deaths count as attempts; a message that kills ends as a dead letter.",
        [Edit("framework/oncemq/engine/crash/suspects.py", "weight = 1 if crash.known else 0", "weight = 0")],
        [f"{CRASHES}::test_the_only_running_message_is_charged"],
    ),
    Defect(
        "torn-record-believed",
        "A torn flight record charges no message.",
        [
            Edit(
                "framework/oncemq/engine/crash/flight_recorder.py",
                "if index == IDLE or zlib.crc32(text) != crc:",
                "if index == IDLE:",
            )
        ],
        [f"{CRASHES}::test_a_torn_record_accuses_no_message"],
    ),
    Defect(
        "suspects-in-company",
        "A message that a process died on runs in a unit of its own.",
        [
            Edit(
                "framework/oncemq/engine/workers/placement.py",
                "if delivery.suspect or (in_order",
                "if False or (in_order",
            )
        ],
        ["tests/unit/engine/workers/test_segments.py::test_suspects_have_units_of_their_own"],
    ),
    Defect(
        "two-suspects-at-once",
        "No two crash suspects run at once in a process.",
        [
            Edit(
                "framework/oncemq/engine/workers/worker.py",
                "with self._alone if ready[0].suspect else _IN_COMPANY:",
                "with _IN_COMPANY:",
            )
        ],
        ["tests/unit/engine/crash/test_suspects_in_an_app.py::test_suspects_run_alone_in_the_process"],
    ),
    Defect(
        "no-hard-limit",
        "A handler that does not return ends the process at its hard limit.",
        [
            Edit(
                "framework/oncemq/engine/crash/time_limits.py",
                "if limits.hard is not None and elapsed >",
                "if False and elapsed >",
            )
        ],
        ["tests/unit/engine/crash/test_time_limits.py::test_the_hard_limit_ends_the_process"],
    ),
    Defect(
        "soft-limit-swallowed",
        "A handler that swallows the cancel of its soft limit is rolled back all the same.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "        if slot.overdue == now:\n            raise Culprits({item: overdue()})\n",
                "",
            )
        ],
        [
            "tests/unit/engine/crash/test_time_limits.py::test_a_handler_that_is_slow_without_a_statement_is_rolled_back",
        ],
    ),
    Defect(
        "bad-items-charged-for-the-unit",
        "Messages that a batch handler names are not charged for a lost database or an error that ended the transaction.",
        [
            Edit(BATCHES, "        if doomed is not None:\n", "        if False:\n"),
            Edit(
                BATCHES,
                "        if doubtful or late or call.frame.failed is not None:\n",
                "        if late:\n",
            ),
        ],
        [
            f"{NAMED}::test_a_lost_database_charges_no_message[sqlite-all]",
            f"{NAMED}::test_a_refused_setting_makes_them_run_alone[sqlite]",
        ],
    ),
    Defect(
        "bad-items-charged-for-the-limit",
        "Messages that a batch handler names are not charged for a call that took longer than its limit.",
        [Edit(BATCHES, "if doubtful or late or", "if doubtful or")],
        [f"{NAMED}::test_a_late_call_is_charged_to_the_message_that_takes_long[sqlite]"],
    ),
    Defect(
        "bad-positions-ignored",
        "A batch handler that names a message outside of its batch is told so.",
        [Edit(BATCHES, "type(at) is not int or not 0 <= at < count", "type(at) is not int")],
        [f"{NAMED}::test_a_wrong_name_is_said_and_every_message_is_kept[sqlite-negative]"],
    ),
)
