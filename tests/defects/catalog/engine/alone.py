"""Defects of rule 20: what neighbours of a unit would notice of each other."""

from defects.defect import Defect, Edit

SUITE = "tests/alone/test_as_if_alone.py::test_programs_leave_the_same_behind_in_units_of_any_size"
ITEMS = "framework/oncemq/engine/transaction/item_loop.py"
FUNCTIONS = "tests/unit/engine/transaction/test_settings_in_functions.py"
ISOLATION = "tests/unit/engine/transaction/test_isolation.py"
ASYNC = "tests/unit/engine/async_handlers/test_async_sessions.py"

DEFECTS = (
    Defect(
        "neighbours-not-flushed",
        "Before a handler's first statement, what earlier messages left pending is in the database.",
        [Edit(ITEMS, "        self.frame.bring(self.run)\n", "")],
        [SUITE],
    ),
    Defect(
        "settings-shared",
        "A message that sets something on the connection runs in a transaction of its own.",
        [
            Edit(
                "framework/oncemq/engine/transaction/connection_watch.py",
                "        if not self.isolated:",
                "        if False:",
            )
        ],
        [SUITE],
    ),
    Defect(
        "connection-not-cleaned",
        "What a handler set on a connection is gone before another message has it.",
        [
            Edit(
                "framework/oncemq/engine/transaction/open_transaction.py",
                "                clean(connection, thoroughly=watch.raw)\n",
                "                pass\n",
            )
        ],
        [SUITE],
    ),
    Defect(
        "functions-settings-unseen",
        "A message that sets something through a function of the database runs in a transaction of its own.",
        [
            Edit(
                "framework/oncemq/engine/transaction/connection_watch.py",
                "    elif watch.routines and not watch.routines.isdisjoint(called(template)):",
                "    elif False:",
            )
        ],
        [f"{FUNCTIONS}::test_what_a_function_sets_stays_with_its_message"],
    ),
    Defect(
        "ledger-follows-the-handler",
        "The ledger's statements after a handler find the ledger's own tables, wherever the handler has gone.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "            saved.restore()\n",
                "            pass\n",
            )
        ],
        [f"{FUNCTIONS}::test_what_goes_elsewhere_takes_no_record_along"],
    ),
    Defect(
        "hidden-commit-unseen",
        "A transaction that a handler ended past the framework is never taken for the one that began.",
        [Edit(ITEMS, "and frame.watch.settings and not frame.proof.holds():", "and False:")],
        [
            "tests/unit/engine/transaction/test_isolation.py::test_a_hidden_commit_loses_no_neighbour_and_no_record_stays"
        ],
    ),
    Defect(
        "driver-for-the-doomed",
        "A handler whose transaction must be rolled back cannot commit it through the driver's connection.",
        [
            Edit(
                "framework/oncemq/engine/transaction/connection_watch.py",
                "        if self.rolls_back:\n            self.rolls_back = False\n            return\n",
                "        if self.doomed is not None:\n            return\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_isolation.py::test_a_doomed_handler_is_given_no_driver_connection"
        ],
    ),
    Defect(
        "session-for-any-thread",
        "A handler's session is refused to other threads, and to everything after the handler has returned.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "    def _require_user(self) -> None:\n",
                "    def _require_user(self) -> None:\n        return\n\n    def _never(self) -> None:\n",
            )
        ],
        ["tests/unit/engine/transaction/test_isolation.py::test_a_session_in_another_thread_is_refused"],
    ),
    Defect(
        "session-for-any-task",
        "An async handler's session is refused to other tasks, which would interleave their statements with its own.",
        [
            Edit(
                "framework/oncemq/engine/transaction/connection_watch.py",
                "        if self.task is not None and self.task is not current_task():",
                "        if False:",
            )
        ],
        [f"{ASYNC}::test_a_misuse_of_the_session_is_charged_to_its_message_alone"],
    ),
    Defect(
        "cancellation-outlives-its-handler",
        "A handler that cancels its own task, which is the worker's, cancels nothing that comes after it.",
        [
            Edit(
                "framework/oncemq/engine/transaction/async_call.py",
                "        if task is not None and task.cancelling():",
                "        if task is None:",
            )
        ],
        [f"{ASYNC}::test_a_cancellation_that_the_handler_left_behind_ends_with_it"],
    ),
    Defect(
        "options-shared",
        "Execution options that a handler sets on the connection are gone for the next message of the unit.",
        [
            Edit(ITEMS, "        self.frame.connection.forget_options()\n", ""),
        ],
        [f"{ISOLATION}::test_options_of_the_connection_stay_with_their_message"],
    ),
    Defect(
        "kept-session-lent-again",
        "A session that its handler has kept is never lent to another message.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "        if self._references() != self._alone:",
                "        if False:",
            )
        ],
        [f"{ISOLATION}::test_a_session_after_its_handler_is_refused"],
    ),
    Defect(
        "session-not-as-new",
        "What a handler sets on its session is gone for the next message.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "        own.clear()\n        own.update(self._as_new, ",
                "        own.update(_user=self._as_new['_user'], ",
            )
        ],
        [f"{ISOLATION}::test_what_is_set_on_a_session_stays_with_its_message"],
    ),
    Defect(
        "followers-charged",
        "A failure is not charged to a message that ran on what an earlier one of its key never reached.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "        if self._attempt.keys_matter and self._cuts_before(charged, wrote):\n            return\n",
                "",
            )
        ],
        [f"{ISOLATION}::test_a_message_behind_one_that_leaves_nothing_is_not_charged"],
    ),
    Defect(
        "strangers-charged",
        "A failure is not charged to a message that ran on what an earlier one of another key never reached.",
        [
            Edit(
                "framework/oncemq/engine/transaction/savepoint_batches.py",
                "len(charged) == 1 or delivery.key in keys",
                "delivery.key in keys",
            )
        ],
        [f"{ISOLATION}::test_a_stranger_behind_one_that_leaves_nothing_is_not_charged"],
    ),
    Defect(
        "refused-together-charged-together",
        "Of messages that a strategy refuses together, those behind a writer are not charged before it has its verdict.",
        [
            Edit(
                "framework/oncemq/engine/transaction/savepoint_batches.py",
                "            changed = changed or delivery in wrote\n",
                "",
            )
        ],
        [f"{ISOLATION}::test_a_stranger_that_is_refused_together_with_the_cause_is_not_charged"],
    ),
    Defect(
        "deleted-objects-lent",
        "A session's transaction serves the next message only if a rollback in it would restore no object.",
        [
            Edit(
                "framework/oncemq/engine/transaction/handler_session.py",
                "if self.identity_map._dict or found._new or found._deleted or found._dirty or found._key_switches:",
                "if self.identity_map._dict:",
            )
        ],
        [f"{ISOLATION}::test_what_a_message_deleted_comes_back_to_no_other"],
    ),
)
