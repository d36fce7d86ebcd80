"""Defects of judging failures: errors as text, delays, and an error that is one message's."""

from defects.defect import Defect, Edit

WHOSE = "tests/unit/engine/workers/test_error_attribution.py"
SETTLE = "tests/unit/engine/settlement/test_settler.py"

MIDDLEWARES = "framework/oncemq/handler/middlewares.py"
AROUND = "tests/suites/kit/test_middlewares.py::test_one_that_breaks_the_call_fails_by_its_name"

DEFECTS = (
    Defect(
        "retry-takes-anything",
        "Retry refuses a delay that is none where it is raised.",
        [
            Edit(
                "framework/oncemq/errors.py",
                "None if after is None else delay_of(after)",
                "after  # type: ignore[assignment]",
            )
        ],
        [
            "tests/unit/engine/base/test_error_verdicts.py::test_retry_refuses_any_other_delay_where_it_is_raised"
        ],
    ),
    Defect(
        "settling-thread-dies",
        "An error while one message is settled is that message's, and the thread lives.",
        [
            Edit(
                "framework/oncemq/engine/settlement/background_settler.py",
                "            if len(failed) == 1:\n",
                "            if True:\n                raise\n            if len(failed) == 1:\n",
            )
        ],
        [
            "tests/unit/engine/settlement/test_background_settler.py::test_a_settlement_that_raises_is_that_messages_alone"
        ],
    ),
    Defect(
        "strange-error-of-a-send-pauses-the-consumer",
        "What an adapter raises about one message does not reach those sent with it.",
        [
            Edit(
                "framework/oncemq/engine/settlement/settler.py",
                "        if len(parts) == 1:\n",
                "        raise\n        if len(parts) == 1:\n",
            )
        ],
        [
            "tests/unit/engine/settlement/test_refused_settlements.py::test_an_error_about_one_message_does_not_reach_its_neighbours"
        ],
    ),
    Defect(
        "error-text-unguarded",
        "An exception whose own text cannot be made is described all the same.",
        [
            Edit(
                "framework/oncemq/common/error_text.py",
                "        return clean_text(str(error), limit)\n    except BaseException:",
                "        return clean_text(str(error), limit)\n    except KeyError:",
            )
        ],
        ["tests/unit/common/test_error_text.py::test_an_error_that_raises_from_its_methods_is_described"],
    ),
    Defect(
        "error-text-unclean",
        "An error's text is clean where it is made: no lone surrogate, no NUL.",
        [Edit("framework/oncemq/common/error_text.py", '"backslashreplace"', '"surrogatepass"')],
        ["tests/unit/common/test_error_text.py::test_what_no_place_can_keep_is_escaped"],
    ),
    Defect(
        "poison-pauses-the-consumer",
        "A message that fails alone, with nothing behind it, is charged and ends as a dead letter.",
        [
            Edit(
                "framework/oncemq/engine/transaction/error_attribution.py",
                "    own = shared < SHARED or ",
                "    own = False or ",
            )
        ],
        [f"{WHOSE}::test_a_message_with_nothing_behind_it_is_charged[sqlite-missing]"],
    ),
    Defect(
        "missing-table-burns-messages",
        "What another message fails by too is everything's: the consumer pauses, no message is burnt.",
        [
            Edit(
                "framework/oncemq/engine/transaction/error_attribution.py",
                "    own = shared < SHARED or ",
                "    own = True or ",
            )
        ],
        [f"{WHOSE}::test_where_the_handlers_table_is_missing_no_message_is_burnt[sqlite]"],
    ),
    Defect(
        "own-tables-not-probed",
        "When the framework's own tables cannot be used, no message is charged.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "        elif not self._attempt.database_answers():\n",
                "        elif False:\n",
            )
        ],
        [f"{WHOSE}::test_where_the_frameworks_own_tables_are_away_no_message_is_charged[sqlite]"],
    ),
    Defect(
        "other-databases-error-is-ours",
        "An error of a connection that is not the unit's is the handler's.",
        [
            Edit(
                "framework/oncemq/engine/transaction/error_attribution.py",
                "        return False  # seen by the events of another engine",
                "        return True",
            )
        ],
        [f"{WHOSE}::test_what_else_a_handler_uses_is_its_own[sqlite-away-True]"],
    ),
    Defect(
        "other-drivers-lock-is-ours",
        "A lock time-out of a driver that has no part in the unit is the handler's.",
        [
            Edit(
                "framework/oncemq/engine/transaction/error_attribution.py",
                "        raw and classify",
                "        classify",
            )
        ],
        [f"{WHOSE}::test_a_lock_in_a_mysql_of_the_handlers_own_is_its_own[sqlite-True-deadlock]"],
    ),
    Defect(
        "neighbours-wait-for-poison",
        "The neighbours of a message that makes the database fail go on without it, in one transaction.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "            self._set_aside(error.item.delivery)\n",
                "            self._give_up(error)\n",
            )
        ],
        [
            f"{WHOSE}::test_a_message_that_fails_alone_is_charged_and_its_neighbours_are_applied[sqlite-missing]"
        ],
    ),
    Defect(
        "stale-row-is-a-deadlock",
        "A row that another transaction changed is the message's own failure, and no deadlock.",
        [
            Edit(
                "framework/oncemq/retry/classify.py",
                "        return Fault.DATA  # its row is gone",
                "        return Fault.TRANSIENT  # its row is gone",
            )
        ],
        [f"{WHOSE}::test_a_row_that_a_rival_changed_is_no_deadlock[sqlite]"],
    ),
    Defect(
        "retry-beyond-keep",
        "A retry later than records are kept is refused: a copy would take effect again.",
        [Edit("framework/oncemq/engine/settlement/settler.py", "and delay > self._longest:", "and False:")],
        [f"{SETTLE}::test_a_retry_later_than_records_are_kept_is_refused_in_words"],
    ),
    Defect(
        "retry-beyond-the-broker",
        "A retry for which the broker holds nothing comes as the policy says.",
        [Edit("framework/oncemq/engine/settlement/settler.py", "if verdict.delay is not None]", "if False]")],
        [f"{SETTLE}::test_a_retry_for_which_the_broker_holds_nothing_comes_as_the_policy_says"],
    ),
    Defect(
        "swallowed-flush-kept",
        "What SQLAlchemy has rolled back after a flush that the handler swallowed is its failure, and no strategy's bug.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "self.guard is not None and self.guard.lost and self.frame.watch.doomed is None",
                "False",
            )
        ],
        [
            "tests/unit/engine/transaction/test_handler_savepoint.py::test_only_the_culprit_is_undone[sqlite-swallowed flush]"
        ],
    ),
    Defect(
        "errors-are-asked-what-they-are",
        "What an exception says of its own class is not believed: asking it may raise.",
        [
            Edit(
                "framework/oncemq/common/error_text.py",
                "return issubclass(type(error), kind)",
                "return isinstance(error, kind)",
            )
        ],
        [
            "tests/poison/test_poison_kinds.py::test_the_same_for_every_kind_of_handler[0-speaks-sqlite]",
            "tests/poison/test_poison_kinds.py::test_the_same_for_every_kind_of_handler[0-async-sqlite]",
        ],
    ),
    Defect(
        "own-file-is-the-units",
        "A file of the handler's own that is locked pauses nothing.",
        [
            Edit(
                "framework/oncemq/engine/transaction/error_attribution.py",
                'raw and classify(error) is Fault.TRANSIENT and not kind.__module__.startswith(("psycopg", "sqlite3"))',
                'classify(error) is Fault.TRANSIENT and not kind.__module__.startswith("psycopg")',
            )
        ],
        [f"{WHOSE}::test_a_file_of_the_handlers_own_that_is_locked_is_its_own[sqlite]"],
    ),
    Defect(
        "middleware-may-swallow",
        "A middleware that swallows its handler's error fails by its name.",
        [Edit(MIDDLEWARES, "            self.state = _RAISED\n", "            self.state = _RETURNED\n")],
        [f"{AROUND}[memory-swallows-sync]"],
    ),
    Defect(
        "middleware-may-call-twice",
        "A middleware that calls its handler twice fails by its name.",
        [
            Edit(
                MIDDLEWARES,
                "        self.state = _TWICE\n        raise self.fault()",
                "        self.state = _NEW",
            )
        ],
        [f"{AROUND}[memory-twice-sync]"],
    ),
    Defect(
        "middleware-may-skip",
        "A middleware that does not call its handler fails by its name.",
        [
            Edit(
                MIDDLEWARES,
                "            step.error = None  # else its traceback would keep it alive\n            raise\n        if step.state is not _RETURNED:",
                "            step.error = None\n            raise\n        if step.state is _RAISED:",
            )
        ],
        [f"{AROUND}[memory-no-call-sync]"],
    ),
    Defect(
        "duplicates-are-told",
        "A middleware is told after a commit of what was applied, and of nothing else.",
        [Edit(MIDDLEWARES, "            if item.verdict is not PROCEED:\n", "            if False:\n")],
        ["tests/suites/kit/test_middlewares.py::test_committed_messages_are_told[memory]"],
    ),
    Defect(
        "told-before-the-commit",
        "A middleware is told of a message after the commit.",
        [Edit(MIDDLEWARES, "    def committed(self, run", "    def confirm(self, run")],
        ["tests/suites/kit/test_middlewares.py::test_what_is_told_is_committed[memory]"],
    ),
    Defect(
        "call-outlives-its-handler",
        "A middleware that keeps a call cannot use its session afterwards.",
        [
            Edit(
                MIDDLEWARES,
                "            return inner(run, item, message)\n        finally:\n            message._run = None\n",
                "            return inner(run, item, message)\n        finally:\n            pass\n",
            )
        ],
        ["tests/suites/kit/test_middlewares.py::test_a_call_that_is_over_lends_no_session[memory]"],
    ),
    Defect(
        "failed-message-stays-in-memory",
        "A failed message leaves memory when it is settled, without the collector.",
        [
            Edit(
                "framework/oncemq/engine/settlement/settler.py",
                "            forget_error(verdict)\n",
                "            pass\n",
            )
        ],
        [
            (
                "tests/unit/engine/workers/test_memory_of_failures.py"
                "::test_a_failed_message_is_freed_when_it_is_settled[at-once-retry]"
            )
        ],
    ),
    Defect(
        "claim-looked-at-all-the-time",
        "The claim of a dead process is looked at ever less often.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/base.py",
                "min(max(_LOOK_AGAIN, waited / 2), _LONGEST_LOOK)",
                "_LOOK_AGAIN",
            )
        ],
        [
            (
                "tests/unit/strategies/claims/test_two_phase.py"
                "::test_the_claim_of_a_dead_process_is_looked_at_ever_less_often"
            )
        ],
    ),
)
