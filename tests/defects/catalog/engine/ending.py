"""Defects of ends: what was tried and failed ends applied or as a dead letter, and to wait is no failure."""

from defects.defect import Defect, Edit

CHAIN = "framework/oncemq/engine/base/strategy_chain.py"
CHAINS = "tests/unit/engine/base/test_strategy_chain.py"
EXPIRY = "framework/oncemq/engine/base/expiry.py"
EXPIRIES = "tests/unit/engine/base/test_expiry.py"
OVERTAKEN = "tests/unit/engine/base/test_overtaken.py"
SEQUENCE = "strategies/oncemq_strategies/sequence/strategy.py"
ON_DEAD = "tests/unit/engine/settlement/test_on_dead.py"
KIT_ON_DEAD = "tests/suites/kit/test_on_dead.py"
BUILD = "tests/unit/config/build/test_plan.py"

DEFECTS = (
    Defect(
        "failure-settled-in-silence",
        "What was tried and failed is never settled as stale, nor as a duplicate of another message.",
        [Edit(CHAIN, "if was_tried(item.delivery) else verdict", "if False else verdict")],
        [f"{CHAINS}::test_what_failed_before_is_not_settled_unless_its_copy_was"],
    ),
    Defect(
        "failure-expires-in-silence",
        "What was tried and failed does not expire without a dead letter.",
        [Edit(EXPIRY, "if was_tried(item.delivery):", "if False:")],
        [f"{EXPIRIES}::test_a_message_that_failed_is_never_dropped_in_silence"],
    ),
    Defect(
        "expired-message-runs",
        "A message whose time is over does not run.",
        [Edit(EXPIRY, "if until < now else PROCEED", "if False else PROCEED")],
        [f"{EXPIRIES}::test_the_history_has_it"],
    ),
    Defect(
        "dead-is-a-duplicate",
        "A copy of what failed for good is a dead letter, and not settled as the duplicate of an applied message.",
        [
            Edit(
                "framework/oncemq/engine/base/final_failures.py",
                "Traits(decides=False, counts=True)",
                "Traits(decides=False)",
            )
        ],
        [f"{ON_DEAD}::test_a_message_that_has_failed_for_good_is_never_applied[sqlite]"],
    ),
    Defect(
        "undone-and-applied",
        "The function for what failed for good and a copy's handler exclude each other.",
        [
            Edit(
                "framework/oncemq/engine/base/final_failures.py",
                "        if item.envelope.identity in new:\n            return PROCEED\n",
                "        if new is not None:\n            return PROCEED\n",
            )
        ],
        [f"{ON_DEAD}::test_a_message_whose_copy_was_applied_has_not_failed[sqlite]"],
    ),
    Defect(
        "undone-again-by-death",
        "A process that dies before the dead letter is sent does not undo the message a second time.",
        [
            Edit(
                "framework/oncemq/engine/base/final_failures.py",
                """                final_failures.add(
                    run.connection,
                    run.consumer,
                    identity,
                    item.key,
                    failure.code,
                    failure.error,
                    self._clock.now(),
                )
""",
                """                run.connection.info["failure"] = failure
                if self._bulk is not None:
                    self._bulk.delete(run.connection, run.consumer, [identity])
""",
            )
        ],
        [f"{KIT_ON_DEAD}::test_a_death_before_the_dead_letter_is_sent_undoes_once[memory]"],
    ),
    Defect(
        "failed-undoing-recorded",
        "A function that fails leaves no record, by which copies would count as dead or applied.",
        [
            Edit(
                "framework/oncemq/engine/base/final_failures.py",
                "elif identity in new and self._bulk is not None:",
                "elif False and new and self._bulk is not None:",
            )
        ],
        [f"{ON_DEAD}::test_its_failure_leaves_nothing_behind[sqlite-before]"],
    ),
    Defect(
        "death-in-on-dead-loops",
        "A function that ends its process is given up for that message.",
        [Edit("framework/oncemq/engine/settlement/on_dead.py", ">= _DEATHS", ">= 1000")],
        [f"{ON_DEAD}::test_a_function_that_ends_its_process_is_given_up[sqlite]"],
    ),
    Defect(
        "replayed-stays-dead",
        "A dead letter that an operator replays runs again.",
        [Edit("framework/oncemq/operate/letters.py", "        self._may_run(ids)\n", "")],
        [f"{KIT_ON_DEAD}::test_a_replayed_message_runs_again[memory]"],
    ),
    Defect(
        "death-is-no-try",
        "A message that ran when its process was killed is not settled as stale when another has taken its place.",
        [Edit("framework/oncemq/engine/base/overtaken.py", " or delivery.crashes > 0", "")],
        [f"{OVERTAKEN}::test_a_death_in_its_handler_is_a_try[1-True]"],
    ),
    Defect(
        "immediate-try-forgotten",
        "A message that failed a moment ago, and is tried again at once, is not settled as stale.",
        [
            Edit(
                "framework/oncemq/engine/base/overtaken.py",
                " or delivery.immediate > 0",
                "",
            )
        ],
        ["tests/unit/engine/base/test_overtaken.py::test_an_immediate_try_is_a_try"],
    ),
    Defect(
        "immediate-tries-of-the-untried",
        "A message that waits for its row has not failed: it is late afterwards, not overtaken.",
        [
            Edit(
                "framework/oncemq/engine/consumer/consumer.py",
                " or verdict.delay is not None or verdict.untried:",
                " or verdict.delay is not None:",
            )
        ],
        ["tests/suites/kit/test_order.py::test_a_message_that_waits_for_its_row_has_not_been_tried[memory]"],
    ),
    Defect(
        "failed-given-back-as-new",
        "A message that failed and waits for an immediate try is not given back as one that never ran.",
        [
            Edit(
                "framework/oncemq/engine/consumer_runtime.py",
                "dict(self.consumer.failed_among(left))",
                "dict[Delivery, object]()",
            )
        ],
        [
            "tests/unit/engine/settlement/test_immediate_tries.py::test_a_message_that_failed_is_no_new_one_after_the_process"
        ],
    ),
    Defect(
        "settled-before-its-place",
        "What comes before its place waits, whatever another strategy says.",
        [Edit(CHAIN, "for decide in self.counts:", "for decide in self.counts[:0]:")],
        [f"{CHAINS}::test_what_comes_before_its_place_waits_whatever_the_others_say"],
    ),
    Defect(
        "settled-number-not-used-up",
        "A number that another strategy settles is used up.",
        [
            Edit(
                SEQUENCE,
                "        if number is not None:\n            notes.numbers.move",
                "        if number is not None and item.verdict is PROCEED:\n            notes.numbers.move",
            )
        ],
        [f"{OVERTAKEN}::test_a_number_that_a_neighbour_settles_is_used_up"],
    ),
    Defect(
        "waiting-costs-an-attempt",
        "To wait for an earlier message, or for room, costs no attempt.",
        [
            Edit(
                "framework/oncemq/engine/settlement/settler.py",
                "self._headers(delivery, message.attempt) | {headers.WAITING_SINCE",
                "self._headers(delivery, message.attempt + 1) | {headers.WAITING_SINCE",
            )
        ],
        [f"{OVERTAKEN}::test_more_than_may_be_parked_costs_no_attempt"],
    ),
    Defect(
        "asked-delay-without-an-end",
        "A message whose time of publishing lies in the future waits no longer than it may.",
        [
            Edit(
                "framework/oncemq/engine/base/asked_delay.py",
                "min(item.envelope.published_at or seen, seen)",
                "item.envelope.published_at or seen",
            )
        ],
        ["tests/unit/engine/base/test_asked_delay.py::test_a_wait_ends_without_a_time_that_can_be_believed"],
    ),
    Defect(
        "asked-delay-without-a-limit",
        "A message waits no longer than its consumer allows, whatever its producer asks for.",
        [
            Edit(
                "framework/oncemq/engine/base/asked_delay.py",
                "min(due, since + self._limit) - now",
                "due - now",
            )
        ],
        ["tests/unit/engine/base/test_asked_delay.py::test_no_wait_is_longer_than_the_consumer_allows"],
    ),
    Defect(
        "early-message-holds-its-key",
        "What came too early lets by what it waits for.",
        [
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "early = ticket.held and not must_hold_key(later.headers)",
                "early = False",
            )
        ],
        [f"{OVERTAKEN}::test_what_comes_early_does_not_hold_its_key"],
    ),
    Defect(
        "late-copy-hides-a-failure",
        "What was settled unapplied leaves no record, which would make a duplicate of a copy that failed.",
        [
            Edit(
                "strategies/oncemq_strategies/common/processed_records.py",
                "if item.verdict is PROCEED and identity in notes.new",
                "if identity in notes.new",
            )
        ],
        [f"{OVERTAKEN}::test_a_late_copy_does_not_hide_a_failure"],
    ),
    Defect(
        "keys-not-held",
        "Chains whose order matters hold a key while one of its messages is tried again.",
        [
            Edit(
                "framework/oncemq/config/build/consumer.py",
                "any(strategy.traits.holds_key for strategy in chain)",
                "False",
            )
        ],
        [f"{BUILD}::test_keys_are_held_where_order_matters"],
    ),
    Defect(
        "column-with-two-owners",
        "Two consumers of a topic do not decide by one column.",
        [
            Edit(
                "framework/oncemq/config/build/shared_columns.py", "other.consumer != owned.consumer", "False"
            )
        ],
        [f"{BUILD}::test_two_consumers_do_not_decide_by_one_column"],
    ),
    Defect(
        "other-content-is-a-copy",
        "The same number, state or version with other content is a Conflict.",
        [
            Edit(
                "strategies/oncemq_strategies/common/key_fingerprints.py",
                "known[0] != str(place) or",
                "True or",
            )
        ],
        [
            "tests/unit/strategies/common/test_key_fingerprints.py::test_the_same_place_with_other_content_is_a_conflict"
        ],
    ),
    Defect(
        "process-one-without-an-init",
        "As process 1 the program can be told to end during its start, and reaps what handlers leave behind.",
        [Edit("framework/oncemq/common/process_one.py", "    if os.getpid() != 1:\n", "    if True:\n")],
        ["tests/unit/cli/test_process_one.py::test_a_signal_during_the_start_ends_it"],
    ),
    Defect(
        "script-stays-process-one",
        "App.run() as process 1 continues in a child, so that what handlers leave behind is reaped.",
        [Edit("framework/oncemq/app.py", "reaped=leave_process_one()", "reaped=True")],
        [
            "tests/unit/cli/test_process_one.py::test_what_handlers_leave_behind_is_reaped_beside_a_script",
        ],
    ),
    Defect(
        "hard-limit-is-a-crash",
        "The flight recorder says that the hard time limit ended the process, and so does the dead letter.",
        [
            Edit(
                "framework/oncemq/engine/crash/flight_recorder.py",
                "            self.index[0] |= _OVERRUN\n",
                "            pass\n",
            )
        ],
        ["tests/unit/engine/crash/test_hard_limit.py::test_overruns_are_counted_beside_crashes[sqlite]"],
    ),
    Defect(
        "an-async-settlement-ends-silently",
        "Whatever ends the settlement of async handlers ends the app; else it takes messages and settles none.",
        [
            Edit(
                "framework/oncemq/engine/workers/async_worker.py",
                "        except BaseException as error:\n            # Whatever ends",
                "        except Exception as error:\n            # Whatever ends",
            )
        ],
        ["tests/unit/engine/workers/test_async_settlement.py::test_an_error_of_any_kind_ends_the_app"],
    ),
)
