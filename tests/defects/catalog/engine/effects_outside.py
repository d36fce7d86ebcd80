"""Defects of effects outside the database that are claimed and ended many at once."""

from defects.defect import Defect, Edit

TOGETHER = "tests/unit/engine/workers/test_ends_together.py"
WRITER = "tests/unit/engine/workers/test_outcome_writer.py"
CLAIMS = "tests/unit/strategies/claims/test_many_at_once.py"
FLAGS = "tests/unit/strategies/redis/test_redis_flag.py"

DEFECTS = (
    Defect(
        "effect-begun-before-its-claim",
        "No handler begins before the claim of its message is committed, also where many are claimed at once.",
        [
            Edit(
                "framework/oncemq/engine/workers/direct_unit.py",
                "result.trouble = self._chain.reserve(unit)",
                "__import__('threading').Timer(0.02, self._chain.reserve, [unit]).start()",
            ),
            Edit(
                "framework/oncemq/engine/workers/async_worker.py",
                "troubles = await asyncio.to_thread(self._track(firsts[0]).chain.reserve_all, units)",
                "troubles = [None for _ in units]\n"
                "            asyncio.get_running_loop().run_in_executor(\n"
                "                None, self._track(firsts[0]).chain.reserve_all, units\n"
                "            )",
            ),
        ],
        [f"{TOGETHER}::test_every_effect_is_between_its_claim_and_its_end"],
    ),
    Defect(
        "effect-settled-before-its-end",
        "No message is acknowledged before the outcome of its handler is recorded.",
        [
            Edit(
                "framework/oncemq/engine/workers/outcome_writer.py",
                "            self._changed.wait_for(lambda: not self._left)",
                "            self._changed.wait_for(lambda: True)",
            ),
            Edit(
                "framework/oncemq/engine/workers/outcome_writer.py",
                "            await saved",
                "            await asyncio.sleep(0)",
            ),
        ],
        [f"{TOGETHER}::test_every_effect_is_between_its_claim_and_its_end"],
    ),
    Defect(
        "failed-neighbour-is-done",
        "A handler that fails does not end as done because others that were recorded with it do.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/base.py",
                "for run, item, held in started if item.verdict is PROCEED",
                "for run, item, held in started",
            )
        ],
        [f"{CLAIMS}::test_a_failed_neighbour_is_not_done"],
    ),
    Defect(
        "end-of-a-lost-claim",
        "Ends that are recorded together compare each claim with its own owner, not with any of them.",
        [
            Edit(
                "framework/oncemq/ledger/records/claims.py",
                "t.identity = r.c0 AND t.holder = r.c1 AND",
                "t.identity = r.c0 AND t.holder IN (SELECT unnest(CAST(:c1 AS text[]))) AND",
            )
        ],
        [f"{CLAIMS}::test_the_end_of_a_claim_that_another_has_taken_over_ends_nothing[postgresql]"],
    ),
    Defect(
        "unsaved-end-holds-up-others",
        "An outcome that cannot be recorded stops none of those that are recorded with it.",
        [
            Edit(
                "framework/oncemq/engine/workers/direct_unit.py",
                "            if away or len(ended) == 1:",
                "            if True:",
            )
        ],
        [f"{WRITER}::test_one_that_cannot_be_saved_harms_no_neighbour"],
    ),
    Defect(
        "copy-before-its-originals-end",
        "A copy in the same unit is decided when the outcome of its original is recorded.",
        [
            Edit(
                "framework/oncemq/engine/workers/outcome_writer.py",
                "delivery.envelope.identity in self._unsaved",
                "delivery.envelope.identity in ()",
            )
        ],
        [f"{TOGETHER}::test_a_copy_finds_what_its_original_left[sync]"],
    ),
    Defect(
        "ends-together-without-verify",
        "Where no one can be asked about an effect in doubt, its end waits for no other.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/two_phase.py",
                "self.ends_together = asker.can_ask",
                "self.ends_together = True",
            )
        ],
        [f"{CLAIMS}::test_without_an_answer_each_effect_ends_by_itself"],
    ),
    Defect(
        "old-flag-not-looked-at",
        "A flag that was claimed long ago is looked at again before its handler begins.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/redis_flags.py",
                'return self._claimed != "started" or age > self._lease / _SHARE',
                'return self._claimed != "started"',
            )
        ],
        [f"{FLAGS}::test_an_old_claim_is_looked_at_before_its_handler_begins[single]"],
    ),
)
