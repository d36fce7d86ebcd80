"""Defects of settling: what the broker is told, when, and how surely."""

from defects.defect import Defect, Edit

SETTLE = "framework/oncemq/engine/settlement/settler.py"
SETTLING = "tests/unit/engine/settlement/test_settler.py"
APP = "tests/unit/engine/test_application.py"

DEFECTS = (
    Defect(
        "acknowledged-before-commit",
        "Nothing is acknowledged before the transaction that applied it has committed.",
        [
            Edit(
                "framework/oncemq/engine/workers/worker.py",
                "            result = self._execute(",
                "            from oncemq.contracts.verdict import PROCEED\n"
                "            self._settler.settle([(delivery, PROCEED) for delivery in ready])\n"
                "            result = self._execute(",
            )
        ],
        [f"{APP}::test_nothing_is_acknowledged_before_its_commit"],
    ),
    Defect(
        "undecodable-acknowledged-away",
        "What cannot be decoded is dead-lettered, never acknowledged away.",
        [
            Edit(
                "framework/oncemq/engine/consumer/consumer.py",
                "            return reject(str(refusal), error=refusal, code=refusal.reason)\n",
                "            from oncemq.contracts.verdict import DUPLICATE\n            return DUPLICATE\n",
            )
        ],
        [f"{APP}::test_bad_messages_are_buried_whole_and_the_rest_goes_on"],
    ),
    Defect(
        "attempts-never-exhausted",
        "The last attempt ends as a dead letter.",
        [
            Edit(
                SETTLE,
                "+ delivery.crashes >= most",
                "+ delivery.crashes > most",
            )
        ],
        [f"{SETTLING}::test_last_attempt_ends_as_a_dead_letter"],
    ),
    Defect(
        "producer-asks-for-more",
        "A producer may ask for fewer attempts, never for more.",
        [Edit("framework/oncemq/retry/backoff.py", "min(self.attempts, int(asked[0]))", "int(asked[0])")],
        ["tests/unit/retry/test_backoff.py::test_what_a_producer_asks_for_is_bounded[5-4]"],
    ),
    Defect(
        "attempts-not-counted",
        "A retry carries the number of its attempt.",
        [Edit(SETTLE, "self._headers(delivery, attempt + 1)", "self._headers(delivery, attempt)")],
        [f"{SETTLING}::test_retry_carries_the_next_attempt_and_the_cause"],
    ),
    Defect(
        "deferring-costs-an-attempt",
        "What is put off costs no attempt.",
        [
            Edit(
                SETTLE,
                "self._headers(delivery, delivery.message.attempt))",
                "self._headers(delivery, delivery.message.attempt + 1))",
            )
        ],
        [f"{SETTLING}::test_what_is_put_off_costs_no_attempt"],
    ),
    Defect(
        "failed-settlement-forgotten",
        "A settlement that failed is tried again until the broker has it.",
        [
            Edit(
                SETTLE,
                "            if again:\n                raise Unsettled(",
                "            if False:\n                raise Unsettled(",
            )
        ],
        [
            "tests/unit/engine/settlement/test_refused_settlements.py::test_a_failing_settlement_is_tried_again_until_it_works"
        ],
    ),
    Defect(
        "second-settlement-silent",
        "A second settlement of one delivery surfaces.",
        [
            Edit(
                SETTLE,
                "real = [failure for failure in failures if not isinstance(failure.error, DeliveryVoid)]",
                "real = [failure for failure in failures if not isinstance(failure.error, SettleError)]",
            )
        ],
        [f"{SETTLING}::test_a_second_settlement_surfaces"],
    ),
    Defect(
        "dead-letter-noted-before-safe",
        "A dead letter is noted only when the broker has it.",
        [
            Edit(
                SETTLE,
                "for each, verdict, code in dead if each.delivery in settled]",
                "for each, verdict, code in dead]",
            )
        ],
        [f"{SETTLING}::test_a_dead_letter_is_noted_only_when_it_is_safe"],
    ),
    Defect(
        "drain-keeps-what-waits",
        "A drain hands back to the broker what was never started.",
        [
            Edit(
                "framework/oncemq/engine/consumer_runtime.py",
                "        settler.hand_back([delivery for delivery in left if delivery not in failed])\n",
                "",
            )
        ],
        [f"{APP}::test_a_drain_finishes_what_runs_and_returns_the_rest"],
    ),
    Defect(
        "drain-waits-for-ever",
        "A drain ends with its grace, whatever handlers do.",
        [
            Edit(
                "framework/oncemq/engine/application.py",
                "        self._leaving.set()\n",
                "        for crew in self._crews.values():\n            crew.join(1000.0)\n        self._leaving.set()\n",
            )
        ],
        [f"{APP}::test_a_drain_ends_with_the_grace"],
    ),
)
