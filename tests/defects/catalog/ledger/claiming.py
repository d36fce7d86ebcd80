"""Defects of claims: what handlers publish beside them, and whom fences and flags believe."""

from defects.defect import Defect, Edit

LOCK = "tests/unit/strategies/redis/test_redis_lock.py"
MESSAGES = "tests/unit/strategies/claims/test_stored_messages.py"

DEFECTS = (
    Defect(
        "state-timeout-not-cancelled",
        "An entity that leaves a state in time is not told that it has stayed too long.",
        [
            Edit(
                "strategies/oncemq_strategies/state_machine/timeouts.py",
                "if left is not None:",
                "if False and left is not None:",
            )
        ],
        [
            "tests/unit/strategies/state_machine/test_timeouts.py::test_an_entity_that_leaves_in_time_is_not_told[sqlite]"
        ],
    ),
    Defect(
        "state-timeout-of-a-failure",
        "A message that is not applied begins and ends no time-out.",
        [
            Edit(
                "strategies/oncemq_strategies/state_machine/timeouts.py",
                "publisher = publishers.of_item(run, item)",
                "publisher = publishers.of_run(run)",
            ),
            Edit(
                "strategies/oncemq_strategies/state_machine/strategy.py",
                "            run.notes[self][item] = (current, wanted)",
                "            self._timeouts.moved(run, item, current, wanted)\n"
                "            run.notes[self][item] = (current, wanted)",
            ),
        ],
        ["tests/unit/strategies/state_machine/test_timeouts.py::test_copies_and_late_messages_begin_no_time"],
    ),
    Defect(
        "state-timeout-stops-its-consumer",
        "A time-out that a middleware refuses is a retry of its message, and no pause of the consumer.",
        [
            Edit(
                "strategies/oncemq_strategies/state_machine/timeouts.py",
                "except Exception as error:",
                "except ZeroDivisionError as error:",
            )
        ],
        [
            "tests/unit/strategies/state_machine/test_timeouts.py::test_a_middleware_that_refuses_one_time_out_harms_no_other[sqlite]"
        ],
    ),
    Defect(
        "claims-messages-not-stored",
        "What a handler with a claim publishes is stored with the claim's end.",
        [
            Edit(
                "framework/oncemq/ledger/records/claims.py",
                "                if end.also is not None:\n                    end.also(connection)\n",
                "",
            )
        ],
        [f"{MESSAGES}::test_messages_are_stored_before_they_are_sent_and_with_the_claims_end"],
    ),
    Defect(
        "claims-messages-stored-twice",
        "A claim's end that was noted before stores no messages again.",
        [
            Edit(
                "framework/oncemq/ledger/records/claims.py",
                "                finished += 1\n                if end.also",
                "                finished += 1\n            if True:\n                if end.also",
            )
        ],
        [f"{MESSAGES}::test_an_end_that_was_noted_before_stores_nothing_again"],
    ),
    Defect(
        "claims-messages-sent-first",
        "In a direct unit with claims nothing is sent before the claim's end.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/two_phase.py",
                "    stores_outgoing = True\n",
                "    stores_outgoing = False\n",
            )
        ],
        [f"{MESSAGES}::test_messages_are_stored_before_they_are_sent_and_with_the_claims_end"],
    ),
    Defect(
        "silent-verify-allowed",
        "A `verify` that cannot publish is refused beside a handler that does.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/stored_messages.py",
                "if asker.can_ask and not asker.can_publish:",
                "if False:",
            )
        ],
        [f"{MESSAGES}::test_a_verify_that_does_not_publish_is_refused_beside_a_handler_that_does"],
    ),
    Defect(
        "verify-publishes-without-done",
        "What `verify` published counts only with Done.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/verify.py",
                "published if isinstance(answer, Done) else ()",
                "published",
            ),
            Edit(
                "strategies/oncemq_strategies/claims/base.py",
                "        elif isinstance(answer, NotDone):\n",
                "        elif isinstance(answer, NotDone):\n            if run.outgoing is not None:\n"
                "                run.outgoing.extend(asked.published)\n",
            ),
        ],
        [f"{MESSAGES}::test_what_a_dead_process_did_not_publish_is_sent_once"],
    ),
    Defect(
        "fence-raised-too-late",
        "A lock's number is in the row before the handler reads.",
        [
            Edit(
                "strategies/oncemq_strategies/redis_lock/strategy.py",
                "        locked = self._fence.raise_now(tokens)\n",
                "        locked = set[str]()\n",
            )
        ],
        [f"{LOCK}::test_a_late_holder_is_refused_while_the_new_one_still_runs[single]"],
    ),
    Defect(
        "fence-waits-for-rows",
        "A fenced row that is locked puts off its message alone.",
        [
            Edit(
                "strategies/oncemq_strategies/redis_lock/strategy.py",
                "            if delivery.key in locked:\n",
                "            if locked:\n",
            )
        ],
        [f"{LOCK}::test_a_locked_fence_puts_its_message_off_alone[single]"],
    ),
    Defect(
        "confirm-believes-the-clock",
        "Before the commit Redis says whether a lock is still held, not the local clock.",
        [
            Edit(
                "strategies/oncemq_strategies/redis_lock/strategy.py",
                "        self._locks.confirm({id(holding): holding for holding in map(notes.holding, ran)}.values())\n",
                "",
            )
        ],
        [f"{LOCK}::test_the_commit_asks_redis_whether_the_lock_is_held[single]"],
    ),
    Defect(
        "handlers-see-our-headers",
        "A handler can publish the headers that it was given, on every try.",
        [
            Edit(
                "framework/oncemq/message/envelope.py",
                "self.headers = without_ours(message.headers)",
                "self.headers = message.headers",
            )
        ],
        ["tests/unit/message/test_envelope.py::test_an_envelope_shows_the_applications_headers_alone"],
    ),
    Defect(
        "handlers-write-headers",
        "What a handler writes into its message's headers reaches neither the retry nor the dead letter.",
        [
            Edit(
                "framework/oncemq/message/headers.py",
                "__setitem__ = __delitem__ = __ior__ = _refuse",
                "__delitem__ = __ior__ = _refuse",
            )
        ],
        [
            "tests/unit/message/test_headers.py::test_what_handlers_see_cannot_be_changed",
            "tests/suites/kit/test_database_handlers.py::test_a_handler_cannot_change_what_its_retry_sees[memory]",
        ],
    ),
    Defect(
        "client-for-every-lock",
        "Locks of one URL share one client, its threads and its sockets.",
        [
            Edit(
                "framework/oncemq/redis/connect.py",
                "return SHARED.of_url(source, make_client)",
                "return make_client(source)",
            )
        ],
        [
            "tests/unit/strategies/redis/test_sharing_clients.py::test_uses_by_url_leave_nothing_behind[single-use_lock]"
        ],
    ),
    Defect(
        "child-uses-its-parents-client",
        "A child process begins with no client of its parent's.",
        [
            Edit(
                "framework/oncemq/redis/sharing.py",
                "os.register_at_fork(after_in_child=SHARED.forget)\n",
                "",
            )
        ],
        [
            (
                "tests/unit/strategies/redis/test_sharing_clients.py"
                "::test_a_child_process_is_another_owner_with_connections_of_its_own"
            )
        ],
    ),
    Defect(
        "replica-is-asked-for-ever",
        "A server that says that it is no master loses its connections, so that its name is resolved again.",
        [
            Edit(
                "framework/oncemq/redis/exchange.py",
                "    if any(is_no_master(answer) for answer in talk.answers):\n",
                "    if False:\n",
            )
        ],
        ["tests/unit/redis/test_managed_failover.py::test_a_single_command_goes_on_at_the_new_master"],
    ),
    Defect(
        "idle-connections-to-a-replica-stay",
        "When one connection meets a replica, the idle ones beside it are closed, too.",
        [
            Edit(
                "framework/oncemq/redis/exchange.py",
                "        routes.leave(talk.place)\n",
                "",
            )
        ],
        ["tests/unit/redis/test_managed_failover.py::test_a_single_command_goes_on_at_the_new_master"],
    ),
    Defect(
        "unit-locks-hide-a-replica",
        "A replica's refusal of a unit's locks is the server's answer and not each lock's.",
        [
            Edit(
                "strategies/oncemq_strategies/redis_lock/unit_scripts.py",
                "string.find(answer, 'READONLY ', 1, true)",
                "false",
            )
        ],
        ["tests/unit/redis/test_managed_failover.py::test_every_use_goes_on_at_the_new_master[READONLY]"],
    ),
    Defect(
        "marks-outlive-a-restore",
        "Marks from before a restore are not believed.",
        [
            Edit(
                "framework/oncemq/ledger/schema.py",
                "blake2b((text + restored).encode(), digest_size=4)",
                "blake2b(text.encode(), digest_size=4)",
            )
        ],
        [
            "tests/unit/strategies/redis/test_tiered.py::test_marks_from_before_a_restore_are_not_believed[single]"
        ],
    ),
    Defect(
        "restores-are-counted",
        "Two restores of the same backup are two epochs.",
        [
            Edit(
                "framework/oncemq/ledger/schema.py",
                'f"{_RESTORED} {uuid4().hex}"',
                "_RESTORED",
            )
        ],
        ["tests/unit/ledger/test_schema.py::test_a_restore_changes_the_epoch_and_not_the_version[sqlite]"],
    ),
    Defect(
        "flags-outlive-a-restore",
        "Flags of an app with a database are not believed after its restore.",
        [
            Edit(
                "strategies/oncemq_strategies/claims/redis_flags.py",
                'since = schema.epoch(engine) if engine is not None else ""',
                'since = ""',
            )
        ],
        [
            "tests/unit/strategies/redis/test_redis_flag.py::test_flags_from_before_a_restore_are_not_believed[single]"
        ],
    ),
    Defect(
        "release-needs-the-channel",
        "A lock is released although its message may not be published.",
        [
            Edit(
                "strategies/oncemq_strategies/redisson/lock_scripts.py",
                "local answer = redis.pcall('publish', channel, message or '0')",
                "local answer = redis.call('publish', channel, message or '0')",
            )
        ],
        [
            (
                "tests/unit/strategies/redis/test_channel_permission.py"
                "::test_a_units_locks_are_released_and_it_is_said_once"
            )
        ],
    ),
    Defect(
        "calls-compared-as-written",
        "Fields in another order, 1.0 for 1 and sets are the same call.",
        [
            Edit(
                "framework/oncemq/message/canonical.py",
                "    pairs = sorted((_name(name), _text(part)) for name, part in value.items())\n",
                "    pairs = [(_name(name), _text(part)) for name, part in value.items()]\n",
            )
        ],
        [
            "tests/unit/idempotent_requests/test_calls.py::test_the_same_content_in_another_form_is_the_same_call"
        ],
    ),
    Defect(
        "earlier-digests-unknown",
        "A call that an earlier version kept is recognized.",
        [
            Edit(
                "framework/oncemq/idempotent_requests/ledger.py",
                "and record.fingerprint == earlier()",
                "and False",
            )
        ],
        [
            "tests/unit/idempotent_requests/test_calls.py::test_a_call_that_an_earlier_version_kept_is_recognized"
        ],
    ),
)
