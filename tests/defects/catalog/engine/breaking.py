"""Defects of breakers: what they judge, for how long they are open, and what they may not shorten."""

from defects.defect import Defect, Edit

RATES = "framework/oncemq/engine/rates"
BREAKERS = "framework/oncemq/engine/breakers"
BREAKING = "tests/unit/engine/breakers"

DEFECTS = (
    Defect(
        "breaker-judges-while-open",
        "A half-open breaker forgets what came while it was open.",
        [
            Edit(
                f"{BREAKERS}/breaker.py",
                "            self._forget(now)\n            self.phase",
                "            self.phase",
            )
        ],
        [f"{BREAKING}/test_breaker.py::test_what_came_while_it_was_open_is_not_judged"],
    ),
    Defect(
        "breaker-never-slower",
        "A breaker that opens again and again stays open for longer.",
        [Edit(f"{BREAKERS}/breaker.py", "        self._in_a_row += 1\n", "")],
        [f"{BREAKING}/test_breaker.py::test_half_open_it_opens_again_for_longer"],
    ),
    Defect(
        "unreadable-is-no-failure",
        "A flood of unreadable messages opens the breaker of failures.",
        [Edit(f"{BREAKERS}/recorder.py", "if found is None or delivery.refusal is None:", "if True:")],
        [f"{BREAKING}/test_recorder.py::test_unreadable_messages_are_failures"],
    ),
    Defect(
        "hot-keys-without-bound",
        "Keys are counted in bounded memory.",
        [Edit(f"{BREAKERS}/windows.py", "        if len(self._counts) > _MOST:\n", "        if False:\n")],
        [f"{BREAKING}/test_windows.py::test_many_keys_take_bounded_memory_and_the_frequent_one_is_found"],
    ),
    Defect(
        "breaker-shortens-a-pause",
        "A breaker's pause that lasts longer stays as it is.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/pauses.py",
                "    if longer.first() is None:\n",
                "    if True:\n",
            )
        ],
        [f"{BREAKING}/test_control.py::test_a_longer_pause_of_another_process_is_not_shortened[sqlite]"],
    ),
    Defect(
        "limit-ends-under-a-worker",
        "A worker goes on when its limit ends while it asks.",
        [
            Edit(
                "framework/oncemq/engine/consumer/scheduler.py",
                "asked is not None",
                "self.rate_limit is not None",
            ),
            Edit(
                "framework/oncemq/engine/consumer/scheduler.py",
                "asked.prepare()",
                "self.rate_limit.prepare()",
            ),
            Edit("framework/oncemq/engine/consumer/scheduler.py", "        asked = self.rate_limit\n", ""),
        ],
        ["tests/unit/engine/rates/test_rate_limit.py::test_a_limit_may_end_while_a_worker_asks"],
    ),
    Defect(
        "rate-limit-saved-up",
        "A limited consumer has no burst after a quiet time.",
        [
            Edit(
                f"{RATES}/rate_limit.py",
                "self._left = min(self._most, self._left",
                "self._left = max(0.0, self._left",
            )
        ],
        ["tests/unit/engine/rates/test_rate_limit.py::test_unused_time_is_not_saved_up"],
    ),
    Defect(
        "shared-rate-of-its-own",
        "Processes that share a rate count in one bucket.",
        [
            Edit(
                f"{RATES}/shared_rate.py",
                'self._key = f"oncemq:rate:{scope}"',
                'self._key = f"oncemq:rate:{scope}:{id(self)}"',
            )
        ],
        ["tests/unit/redis/test_shared_rate.py::test_processes_share_one_bucket"],
    ),
    Defect(
        "burst-again-after-each-outage",
        "A Redis that fails and answers in turn allows no process more than the rate.",
        [
            Edit(
                f"{RATES}/shared_rate.py",
                "            says = not self._alone and",
                "            self._here = RateLimit(self._rule.limit, self._clock, self._rule.burst)\n"
                "            says = not self._alone and",
            )
        ],
        [
            "tests/unit/engine/rates/test_shared_rate.py::test_a_redis_that_fails_every_second_time_allows_no_more_than_the_rate"
        ],
    ),
    Defect(
        "idle-process-keeps-a-shared-rate",
        "A process without messages takes nothing from a shared rate.",
        [
            Edit(
                "framework/oncemq/engine/consumer/scheduler.py",
                "timeout > 0 and self._ready:",
                "timeout > 0:",
            )
        ],
        ["tests/unit/engine/rates/test_shared_rate.py::test_a_process_without_messages_asks_for_none"],
    ),
    Defect(
        "shared-rate-asked-twice",
        "Two threads that find no messages left take no more than a burst.",
        [
            Edit(
                f"{RATES}/shared_rate.py",
                "            if self._needs_some():\n                self._ask()",
                "            self._ask()",
            )
        ],
        ["tests/unit/engine/rates/test_shared_rate.py::test_two_threads_that_find_none_left_ask_once"],
    ),
    Defect(
        "slow-breaker-ends-the-rate",
        "Of a declared rate and a slowing breaker the lower one holds.",
        [
            Edit(
                f"{RATES}/rate_limit.py",
                "return min(limit.allowance() for limit in self._limits)",
                "return max(limit.allowance() for limit in self._limits)",
            )
        ],
        ["tests/unit/engine/rates/test_rate_limit.py::test_of_several_limits_the_lowest_holds"],
    ),
    Defect(
        "unknown-version-handled",
        "A body of a version that is not accepted reaches no handler.",
        [
            Edit(
                "framework/oncemq/handler/upcasting.py",
                "        if version not in self._versions:",
                "        if False:",
            )
        ],
        ["tests/unit/handler/test_upcasting.py::test_another_version_is_a_dead_letter"],
    ),
    Defect(
        "older-body-unchecked",
        "A body of an accepted version is checked against its own schema before a function of the user's gets it.",
        [Edit("framework/oncemq/handler/upcasting.py", "if self._check is not None:", "if False:")],
        ["tests/unit/schemas/test_bodies.py::test_an_older_body_is_checked_against_its_own_version"],
    ),
    Defect(
        "named-version-unchecked",
        "A body is checked against the version that its message names.",
        [Edit("framework/oncemq/message/reader.py", "if self._check is not None:", "if False:")],
        ["tests/unit/schemas/test_bodies.py::test_a_topic_says_where_the_version_is"],
    ),
    Defect(
        "refused-body-without-its-key",
        "A message that is refused for its body keeps its key, by which it is found among the dead letters.",
        [
            Edit(
                "framework/oncemq/message/envelope.py",
                'return "" if self.refusal is None else self.refusal.key',
                'return ""',
            )
        ],
        ["tests/unit/schemas/test_bodies.py::test_what_other_producers_send_is_a_dead_letter"],
    ),
    Defect(
        "declared-level-unchecked",
        "An app does not start with registered versions that break the level that is declared for their topic.",
        [
            Edit(
                "framework/oncemq/config/build/plan.py",
                "if consumers:  # `schemas check`",
                "if False:  # `schemas check`",
            )
        ],
        [
            "tests/unit/cli/messages/test_schemas.py::test_an_app_does_not_start_with_versions_that_break_their_level"
        ],
    ),
    Defect(
        "values-of-bodies-shown",
        "Errors about a body name paths and rules, never its values, which may be secrets.",
        [Edit("framework/oncemq/schemas/bodies.py", "mask=_VALUE, ", "")],
        ["tests/unit/schemas/test_bodies.py::test_the_newest_body_is_checked_as_well"],
    ),
    Defect(
        "schema-fetched",
        "Nothing is fetched from an address that a schema names.",
        [Edit("framework/oncemq/schemas/bodies.py", ", retriever=_refuse_retrieval", "")],
        ["tests/unit/schemas/test_bodies.py::test_no_schema_is_fetched"],
    ),
    Defect(
        "version-never-read",
        "A handler that takes no payload, by which no version is read, is refused where a consumer accepts some versions.",
        [
            Edit(
                "framework/oncemq/config/build/around_handlers.py",
                "if upcast is not None and not handler.takes_payload:",
                "if False:",
            )
        ],
        ["tests/unit/handler/test_upcasting.py::test_what_cannot_work_is_refused_in_words"],
    ),
    Defect(
        "unknown-route-ignored",
        "A message without a route is refused unless the app says otherwise.",
        [
            Edit(
                "framework/oncemq/handler/routes.py",
                "elif ignore:",
                "else:",
            )
        ],
        ["tests/unit/handler/test_routes.py::test_a_message_without_a_route_is_a_dead_letter"],
    ),
)
