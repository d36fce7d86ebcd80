"""Defects of the transaction: what may commit, what dooms it, and who owns it."""

from defects.defect import Defect, Edit

ATTEMPT = "framework/oncemq/engine/transaction/unit_transaction.py"
SESSION = "framework/oncemq/engine/transaction/handler_session.py"
WATCH = "framework/oncemq/engine/transaction/connection_watch.py"

DEFECTS = (
    Defect(
        "committed-before-commit",
        "Caches are filled only after the commit.",
        [
            Edit(
                ATTEMPT,
                'self._point("before-commit")',
                'self._point("before-commit")\n                self._after_commit(done.runs)',
            ),
            Edit(
                ATTEMPT, "        self._after_commit(done.runs)\n        return done", "        return done"
            ),
        ],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_caches_are_filled_only_after_the_commit[postgresql-whole]"
        ],
    ),
    Defect(
        "lost-commit-is-success",
        "A commit whose answer is lost is asked again through the chain, never taken for done.",
        [
            Edit(
                "framework/oncemq/engine/transaction/open_transaction.py",
                "        self.transaction.commit()\n",
                "        with suppress(Exception):\n            self.transaction.commit()\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_infrastructure.py::test_a_lost_answer_to_commit_is_asked_again_through_the_chain"
        ],
    ),
    Defect(
        "swallowed-error-commits",
        "A database error outside a savepoint dooms the run, also when the handler swallowed it.",
        [
            Edit(
                WATCH,
                "    if classify(original) is not Fault.DATA or not _only_statement(context.connection, watch):",
                "    if classify(original) is not Fault.DATA:",
            )
        ],
        [
            "tests/unit/engine/transaction/test_dooming_errors.py::test_a_swallowed_integrity_error_loses_nothing"
        ],
    ),
    Defect(
        "doomed-ignored-at-commit",
        "A doomed run is never committed.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "if watch.doomed is not None:",
                "if False:",
            ),
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "        fault = call.fault()\n",
                "        fault = None\n",
            ),
        ],
        [
            "tests/unit/engine/transaction/test_dooming_errors.py::test_a_swallowed_integrity_error_loses_nothing"
        ],
    ),
    Defect(
        "server-status-ignored",
        "Before COMMIT the transaction must be open and without error on the server itself.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "if status != _PSYCOPG_IN_TRANSACTION or",
                "if False and",
            )
        ],
        [
            "tests/unit/engine/transaction/test_caller_transaction.py::test_a_transaction_that_is_over_on_the_server_is_an_obstacle[postgresql-whole]"
        ],
    ),
    Defect(
        "handlers-commit-commits",
        "session.commit() in a handler only flushes: the framework owns the transaction.",
        [
            Edit(
                SESSION,
                "        self.watch.commits = True\n        self.flush()",
                "        self.flush()\n        self.bind.connection.driver_connection.commit()",
            )
        ],
        ["tests/unit/engine/transaction/test_owned_session.py::test_commit_only_flushes[postgresql-whole]"],
    ),
    Defect(
        "own-savepoint-dooms",
        "An integrity error inside the handler's own savepoint is the handler's own business.",
        [Edit(WATCH, "    if in_savepoint(connection, watch):\n        return True\n", "")],
        ["tests/unit/engine/transaction/test_owned_session.py::test_own_savepoints_are_allowed"],
    ),
    Defect(
        "savepoint-hides-deadlock",
        "A lock failure dooms the run also inside a savepoint: the server may have undone everything.",
        [
            Edit(
                WATCH,
                "    if classify(original) is not Fault.DATA or not _only",
                "    if not _only",
            )
        ],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_a_lock_failure_inside_an_own_savepoint_dooms_the_run"
        ],
    ),
    Defect(
        "pending-objects-dropped",
        "A handler cannot drop the pending objects of other messages from the session.",
        [Edit(SESSION, '        self._refuse("expunge_all")\n', "")],
        [
            "tests/unit/engine/transaction/test_owned_session.py::test_ending_the_transaction_charges_that_message_alone[sqlite-whole-expunge_all]"
        ],
    ),
    Defect(
        "raw-commit-reaches-server",
        "SQL that ends the transaction never reaches the server.",
        [
            Edit(
                "framework/oncemq/engine/transaction/connection_watch.py",
                "    if word in _ENDS_TRANSACTION:\n",
                "    if False:\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_owned_session.py::test_ending_the_transaction_charges_that_message_alone"
        ],
    ),
    Defect(
        "dropped-after-writing",
        "An item is dropped without roll-back only if it sent no statement.",
        [Edit("framework/oncemq/engine/transaction/item_loop.py", " and not call.spoke\n", "\n")],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_a_reject_after_sql_is_rolled_back[sqlite-whole]"
        ],
    ),
    Defect(
        "dropped-with-pending-object",
        "An item is dropped without roll-back only if it leaves nothing in the session.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "            call.session.end()\n            self.dropped",
                "            call.keep(waits=True)\n            self.dropped",
            )
        ],
        [
            "tests/unit/engine/transaction/test_dropped_items.py::test_what_was_only_added_is_taken_back[sqlite-whole]"
        ],
    ),
    Defect(
        "guard-keeps-what-failed",
        "What a handler did behind its own savepoint is undone when it fails.",
        [
            Edit(
                "framework/oncemq/engine/transaction/unit_savepoint.py",
                "                savepoint.rollback()",
                "                savepoint.commit()",
            )
        ],
        [
            "tests/unit/engine/transaction/test_handler_savepoint.py::test_only_the_culprit_is_undone[sqlite-raise]"
        ],
    ),
    Defect(
        "payload-not-decoded-per-run",
        "Every run has a payload of its own: what a failed handler changed in it is gone.",
        [
            Edit(
                "framework/oncemq/engine/base/items.py",
                "    delivery.payload = None\n",
                "    delivery.payload = payload\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_dropped_items.py::test_payload_changes_of_a_failed_run_are_gone[sqlite-whole]"
        ],
    ),
    Defect(
        "error-after-commit-raises",
        "Nothing may fail a unit after its commit.",
        [
            Edit(
                ATTEMPT,
                "            self._failed(doing, error)",
                "            raise",
            )
        ],
        ["tests/unit/engine/transaction/test_rescue.py::test_an_error_after_the_commit_changes_nothing"],
    ),
    Defect(
        "lent-transaction-unproved",
        "A transaction lent to a caller is committed only if it is the one that began.",
        [
            Edit(
                "framework/oncemq/engine/transaction/caller_transaction.py",
                "        if reason is None and not self._proof.holds():\n",
                "        if False:\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_caller_transaction.py::test_a_transaction_that_began_behind_an_ended_one_is_not_committed[postgresql-whole]"
        ],
    ),
)
