"""Defects of what the ledger stores for later: the outbox, parked messages, claims, requests, and worker numbers of ids."""

from defects.defect import Defect, Edit

OUTBOX_TESTS = "tests/unit/ledger/messages/test_outbox.py"
PARKING_TESTS = "tests/unit/engine/parking/test_parking.py"
TWO_PHASE_TESTS = "tests/unit/strategies/claims/test_two_phase.py"
IDS_TESTS = "tests/unit/ids/test_snowflake.py"
MIDDLEWARE = "tests/unit/idempotent_requests/test_middleware.py"

_OUTBOX = (
    Defect(
        "outbox-deletes-for-others",
        "A row that another process has taken over is that process's to delete.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox.py",
                "among(connection, TABLE.c.id, BigInteger(), sorted(ids)), TABLE.c.owner == claim.owner)",
                "among(connection, TABLE.c.id, BigInteger(), sorted(ids)))",
            )
        ],
        [f"{OUTBOX_TESTS}::test_only_the_owner_deletes[sqlite]"],
    ),
    Defect(
        "outbox-overtakes-its-key",
        "A row waits for an older one of its key.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                "stored.message.key), stored.id) >= stored.id",
                "stored.message.key), stored.id) > 0",
            )
        ],
        [f"{OUTBOX_TESTS}::test_a_row_waits_for_an_older_one_of_its_key[sqlite]"],
    ),
    Defect(
        "outbox-takes-what-waits",
        "What waits behind a refused row of its key is not taken over.",
        [Edit("framework/oncemq/ledger/messages/outbox.py", "older.c.id < TABLE.c.id,", "older.c.id < 0,")],
        [f"{OUTBOX_TESTS}::test_what_waits_behind_a_refused_row_is_not_taken_over[sqlite]"],
    ),
    Defect(
        "outbox-waits-for-other-apps",
        "Rows of other apps hold nothing back.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                "            TABLE.c.app == claim.app,\n",
                "",
            )
        ],
        [f"{OUTBOX_TESTS}::test_other_apps_and_keyless_rows_hold_nothing_back[sqlite]"],
    ),
    Defect(
        "outbox-takes-before-due",
        "Nothing is taken over before it is due.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox.py",
                "return and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(dialect))",
                "return TABLE.c.id > 0",
            )
        ],
        [f"{OUTBOX_TESTS}::test_nothing_is_taken_over_before_it_is_due[sqlite]"],
    ),
    Defect(
        "outbox-forgets-order",
        "What is published together is numbered in its order.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox.py",
                "pairs = zip(sorted(ids), messages, strict=True)",
                "pairs = zip(sorted(ids), reversed(messages), strict=True)",
            )
        ],
        [f"{OUTBOX_TESTS}::test_a_hundred_messages_are_numbered_in_order[sqlite]"],
    ),
    Defect(
        "outbox-loses-the-error",
        "Each refused row says its own error.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox.py",
                '"attempts": TABLE.c.attempts + 1, "error": error}',
                '"attempts": TABLE.c.attempts + 1}',
            )
        ],
        ["tests/unit/engine/outbox/test_outbox.py::test_each_refused_row_says_its_own_error"],
    ),
)

_PARKING = (
    Defect(
        "parked-other-content-is-a-copy",
        "Messages of one identity with different contents all wait.",
        [
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "return any(_same(message, other) for other in",
                "return any(True for other in",
            )
        ],
        [
            "tests/unit/engine/parking/test_held_keys.py::test_messages_of_one_identity_with_different_contents_all_wait[sqlite]"
        ],
    ),
    Defect(
        "parked-out-of-order",
        "Messages that are held keep their order.",
        [
            Edit(
                "framework/oncemq/ledger/messages/parking.py",
                "order_by(waiting.c.id)",
                "order_by(waiting.c.id.desc())",
            )
        ],
        ["tests/unit/engine/parking/test_held_keys.py::test_many_held_messages_keep_their_order[sqlite]"],
    ),
    Defect(
        "parked-taken-twice",
        "What follows already is not taken again with each commit.",
        [
            Edit(
                "framework/oncemq/engine/parking/parking_strategies.py",
                "[id_ for id_ in ids if id_ not in coming]",
                "[id_ for id_ in ids if coming is not None]",
            )
        ],
        [f"{PARKING_TESTS}::test_each_parked_message_is_taken_once[sqlite]"],
    ),
    Defect(
        "parked-in-hand-swept",
        "What a process has in hand is not taken from itself.",
        [
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "parking.due(connection, self.consumer, self.clock.now(), _SWEEP, ours, self._topic)",
                "parking.due(connection, self.consumer, self.clock.now(), _SWEEP, (), self._topic)",
            )
        ],
        [f"{PARKING_TESTS}::test_what_a_process_has_in_hand_is_not_swept[sqlite]"],
    ),
    Defect(
        "burial-error-lost",
        "A parked message whose burial cannot be asked for is tried again.",
        [
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "            return [Refused(error)] * len(burials)",
                "            del error\n            return [CONFIRMED] * len(burials)",
            ),
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "from oncemq.contracts.adapter import ",
                "from oncemq.contracts.adapter import CONFIRMED\nfrom oncemq.contracts.adapter import ",
            ),
        ],
        [f"{PARKING_TESTS}::test_a_burial_that_cannot_be_asked_for_is_tried_again[sqlite]"],
    ),
    Defect(
        "given-up-holds-its-key",
        "A held message that is given up lets those behind it go.",
        [
            Edit(
                "framework/oncemq/engine/parking/parked_source.py",
                "        parking.remove(connection, [ticket.id])\n        if ticket.held:",
                "        parking.remove(connection, [ticket.id])\n        if False:",
            )
        ],
        [
            "tests/unit/engine/parking/test_held_keys.py::test_a_held_message_that_is_given_up_lets_the_others_go[sqlite]"
        ],
    ),
)

_CLAIMS = (
    Defect(
        "claim-taken-over-twice",
        "Of two that find a claim which no process works on, one takes it over.",
        [
            Edit(
                "framework/oncemq/ledger/records/claims.py",
                "return self._set(connection, seen.identity, unchanged, changes)",
                "return self._set(connection, seen.identity, TABLE.c.identity == seen.identity, changes)",
            )
        ],
        ["tests/unit/strategies/claims/test_claim_book.py::test_only_one_takes_a_claim_over"],
    ),
    Defect(
        "undone-stays-in-doubt",
        "A handler whose effect did not happen runs again.",
        [
            Edit(
                "framework/oncemq/ledger/records/claims.py",
                'return self._set(connection, identity, ours, {"state": State.PROCESSING.value',
                'return False and self._set(connection, identity, ours, {"state": State.PROCESSING.value',
            )
        ],
        [f"{TWO_PHASE_TESTS}::test_not_done_runs_again"],
    ),
)

_REQUESTS = (
    Defect(
        "other-content-same-answer",
        "A key that comes again with other content is a conflict.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "if record.fingerprint != fingerprint and not _same_as_earlier(record, earlier):",
                "if False:",
            )
        ],
        [
            f"{MIDDLEWARE}::test_another_content_is_refused",
            "tests/unit/idempotent_requests/test_calls.py::test_other_arguments_are_a_conflict",
        ],
    ),
    Defect(
        "old-answer-until-purged",
        "A copy that comes after `keep` runs, whether old rows have been purged or not.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "if seen.changed_at >= before:",
                "if True:",
            )
        ],
        [
            "tests/unit/idempotent_requests/test_calls.py::test_a_copy_after_its_time_runs_before_any_purge[sqlite]"
        ],
    ),
    Defect(
        "unkept-result-commits",
        "A call whose result cannot be kept has no effect in the database.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/calls.py",
                "            attempt.failed()\n            text =",
                "            attempt.answered(Answer(None, body=None))\n            text =",
            )
        ],
        ["tests/unit/idempotent_requests/test_calls.py::test_a_result_that_json_cannot_hold"],
    ),
    Defect(
        "request-runs-beside-the-first",
        "A copy that comes while its first one is carried out is told to come again.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "if record.until > self.clock.now():",
                "if False:",
            )
        ],
        [f"{MIDDLEWARE}::test_a_copy_meanwhile_is_told_to_come_again"],
    ),
    Defect(
        "exposed-request-repeated",
        "A request that may have taken effect outside is not repeated unless the app says so.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "if record.state is State.EXPOSED and helpless:",
                "if False:",
            )
        ],
        [f"{MIDDLEWARE}::test_an_external_effect_that_may_have_happened_is_not_repeated"],
    ),
    Defect(
        "unclear-request-carried-out",
        "What `verify` cannot tell is not carried out again.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "        if not isinstance(found, Answer):\n            self.give_up(claim)\n",
                "        if not isinstance(found, Answer):\n            return claim\n            self.give_up(claim)\n",
            )
        ],
        [f"{MIDDLEWARE}::test_verify_decides_about_an_abandoned_request"],
    ),
)

_IDS = (
    Defect(
        "ids-without-a-lease",
        "No id is made with a worker number whose lease has ended.",
        [Edit("framework/oncemq/ids/snowflake.py", "if moment_of(self._last + 1) > until:", "if False:")],
        [f"{IDS_TESTS}::test_a_lease_that_ended_makes_no_more_ids"],
    ),
    Defect(
        "ids-after-a-clock-set-back",
        "A clock that went back further than is waited for makes no ids.",
        [
            Edit(
                "framework/oncemq/ids/snowflake.py",
                "if back > ABSORBED / timedelta(milliseconds=1):",
                "if False:",
            )
        ],
        [
            f"{IDS_TESTS}::test_a_clock_set_back_before_the_first_id_is_noticed",
            f"{IDS_TESTS}::test_a_clock_set_back_further_is_refused",
        ],
    ),
    Defect(
        "ids-shared-with-a-child",
        "A child may not use its parent's worker number.",
        [
            Edit(
                "framework/oncemq/ids/snowflake.py",
                "        if self._process != os.getpid():\n            raise",
                "        if False:\n            raise",
            )
        ],
        [f"{IDS_TESTS}::test_a_fork_may_not_share_its_parents_number"],
    ),
    Defect(
        "ids-of-a-full-millisecond",
        "A millisecond whose ids are used up is waited for.",
        [
            Edit(
                "framework/oncemq/ids/snowflake.py",
                "while now <= self._last and self._used == PER_MILLISECOND:",
                "while False:",
            )
        ],
        [f"{IDS_TESTS}::test_a_full_millisecond_waits_for_the_next"],
    ),
    Defect(
        "ids-number-in-use",
        "A number in use belongs to one process.",
        [
            Edit(
                "framework/oncemq/ids/worker_number.py",
                "return Held(number, now, until) if ours else None",
                "return Held(number, now, until)",
            ),
            Edit(
                "framework/oncemq/ids/worker_number.py",
                "leases.TABLE.c.until >= self._clock.now(),",
                "leases.TABLE.c.until < leases.TABLE.c.until,",
            ),
        ],
        [
            f"{IDS_TESTS}::test_when_every_number_is_in_use_there_is_none",
            f"{IDS_TESTS}::test_two_makers_never_share_a_number",
        ],
    ),
)

DEFECTS = (*_OUTBOX, *_PARKING, *_CLAIMS, *_REQUESTS, *_IDS)
