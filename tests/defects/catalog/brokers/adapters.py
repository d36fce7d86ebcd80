"""Defects of the adapters: what travels with a message, and what is never lost between two queues."""

from defects.defect import Defect, Edit

SUITE = "tests/suites/rabbitmq/test_adapter.py::TestRabbitMQAdapter"
OWN_SUITE = "tests/suites/test_embedded_adapter.py::TestEmbeddedAdapter"
POLICIES = "adapters/oncemq_adapters/rabbitmq/topology/policies.py"
LIMITS = "tests/suites/rabbitmq/test_limits_of_policies.py"
TRAPS = "tests/suites/rabbitmq/test_traps.py"
PROPERTIES = "tests/unit/adapters/rabbitmq/messages/test_properties.py"
ACKS = "tests/unit/adapters/rabbitmq/consuming/test_acks.py"
KAFKA_TRACKER = "adapters/oncemq_adapters/kafka/tracker.py"
KAFKA_COMMITS = "adapters/oncemq_adapters/kafka/commits.py"
KAFKA = "tests/unit/adapters/kafka"
KAFKA_TRAPS = "tests/suites/kafka/test_traps.py"

DEFECTS = (
    Defect(
        "copies-forget-their-exchange",
        "A retry has the exchange and routing key of its first delivery, which handlers may look at.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/metadata.py",
                "if found and found.exchange else {}",
                "if found is None else {}",
            )
        ],
        ["tests/suites/rabbitmq/test_metadata.py::test_a_retry_and_a_replay_keep_exchange_and_routing_key"],
    ),
    Defect(
        "forked-child-keeps-connections",
        "A process that a handler forked has no connection of its parent, so servers notice the parent's death.",
        [Edit("framework/oncemq/common/forked.py", "    os.register_at_fork(", "    (lambda **_: None)(")],
        [
            "tests/suites/test_forked_child.py::TestRabbitMQ::test_what_a_killed_process_held_goes_to_another_member",
            "tests/suites/test_forked_child.py::TestRocketMQ::test_what_a_killed_process_held_goes_to_another_member",
            "tests/suites/test_forked_child.py::test_rows_that_a_killed_process_had_locked_are_free[postgresql]",
            "tests/suites/test_forked_child.py::test_rows_that_a_killed_process_had_locked_are_free[mariadb]",
        ],
    ),
    Defect(
        "stale-tag-acknowledged",
        "A delivery of a lost channel is void: its tag means another message on the next one.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/channel_deliveries.py",
                "        if not self.alive:\n            return self.void(delivery)\n        if not self._tracker",
                "        if not self._tracker",
            ),
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/channel_deliveries.py",
                "        if not self.alive:\n            return self.void(delivery)\n        delivery.settled = True",
                "        delivery.settled = True",
            ),
        ],
        [f"{SUITE}::test_unsettled_come_back_and_the_old_ones_are_void[cut]"],
    ),
    Defect(
        "confirmation-not-awaited",
        "A retry is confirmed by the broker before its original is acknowledged.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/confirms.py",
                "        self._pending[self._number] = _Pending(batch, index)\n",
                "        batch.answer(index, None)\n",
            )
        ],
        [f"{TRAPS}::test_dead_letter_without_its_queue_stays_unsettled"],
    ),
    Defect(
        "not-mandatory",
        "What no queue takes is refused, not confirmed and dropped.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/confirms.py",
                "mandatory=True",
                "mandatory=False",
            )
        ],
        [f"{SUITE}::test_unroutable_is_refused"],
    ),
    Defect(
        "original-acknowledged-first",
        "The original goes only after its copy is safe.",
        [
            Edit(
                "adapters/oncemq_adapters/forwarding.py",
                "    answers = send([copy for _, copy in copies]) if copies else ()\n",
                "    failed += finish([delivery for delivery, _ in copies])\n"
                "    answers = send([copy for _, copy in copies]) if copies else ()\n",
            )
        ],
        [
            f"{TRAPS}::test_dead_letter_without_its_queue_stays_unsettled",
            "tests/unit/adapters/test_forwarding.py::test_an_original_without_a_confirmed_copy_can_be_settled_again",
        ],
    ),
    Defect(
        "dead-letter-without-body",
        "A dead letter keeps its original bytes.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/copies.py",
                "next_hop(message.raw or NO_PROPERTIES, message.body,",
                'next_hop(message.raw or NO_PROPERTIES, b"",',
            )
        ],
        [f"{SUITE}::test_dead_letter_keeps_body_headers_and_cause"],
    ),
    Defect(
        "routing-history-kept",
        "A copy carries no routing history, which brokers read as a loop.",
        [Edit("adapters/oncemq_adapters/rabbitmq/messages/properties.py", '*("x-death", ', "*(")],
        [f"{PROPERTIES}::test_routing_history_is_not_shown"],
    ),
    Defect(
        "copies-do-not-last",
        "Retries and dead letters survive a restart of the broker.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/properties.py",
                "PERSISTENT = 2\n",
                "PERSISTENT = 1\n",
            )
        ],
        [f"{PROPERTIES}::test_a_copy_is_persistent_and_does_not_expire"],
    ),
    Defect(
        "acknowledged-beyond-a-gap",
        "One frame acknowledges many only where nothing before them is unfinished.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/acks.py",
                "        frames.extend(Frame(tag) for tag in sorted(self._ready))\n",
                "        frames.append(Frame(max(self._ready), multiple=True))\n",
            )
        ],
        [f"{ACKS}::test_a_gap_that_stays_is_passed_by"],
    ),
    Defect(
        "tag-claimed-twice",
        "A tag is settled at most once; the broker closes the channel otherwise.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/acks.py",
                "            if tag < self._lowest or tag in self._taken:\n",
                "            if False:\n",
            )
        ],
        [f"{ACKS}::test_the_second_claim_fails"],
    ),
    Defect(
        "prefetch-ignored",
        "A consumer holds no more unsettled messages than `in_flight` says.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/subscription.py",
                "basic_qos(prefetch_count=self._window,",
                "basic_qos(prefetch_count=0,",
            )
        ],
        [f"{SUITE}::test_no_more_than_in_flight"],
    ),
    Defect(
        "retry-for-all-groups",
        "A retry is for its own group alone.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/copies.py",
                '    if step == 0:\n        return Publication("", place.queue, *copy)\n',
                "    if True:\n        return Publication(place.topic.exchange, place.topic.routing_key, *copy)\n",
            )
        ],
        [f"{SUITE}::test_retry_is_for_its_own_group"],
    ),
    Defect(
        "embedded-lease-not-compared",
        "Settling compares the lease's number: a lost lease settles no other delivery.",
        [
            Edit(
                "adapters/oncemq_adapters/embedded/settlement.py",
                "(message_id, group_id, lease) IN (",
                "(message_id, group_id) IN (",
            ),
            Edit(
                "adapters/oncemq_adapters/embedded/settlement.py",
                "json_extract(value, '$[1]'), json_extract(value, '$[2]')",
                "json_extract(value, '$[1]')",
            ),
        ],
        [f"{OWN_SUITE}::test_expired_delivery_goes_to_another"],
    ),
    Defect(
        "embedded-generation-not-compared",
        "Deliveries of a lost session are void on the embedded broker, too.",
        [
            Edit(
                "adapters/oncemq_adapters/embedded/held_deliveries.py",
                "if delivery.generation != generation or not",
                "if not",
            )
        ],
        [
            "tests/unit/adapters/embedded/test_adapter.py::test_stale_delivery_of_a_replaced_file_settles_nothing"
        ],
    ),
    Defect(
        "embedded-settled-twice",
        "A second settlement surfaces on the embedded broker, too.",
        [
            Edit(
                "adapters/oncemq_adapters/embedded/held_deliveries.py",
                "if isinstance(token, Token) and token.claimed:",
                "if False:",
            )
        ],
        [f"{OWN_SUITE}::test_second_settlement_surfaces"],
    ),
    Defect(
        "embedded-publishing-not-flushed",
        "What the embedded broker confirms has reached the disk.",
        [Edit("adapters/oncemq_adapters/embedded/database.py", "{'FULL' if flush else 'NORMAL'}", "NORMAL")],
        ["tests/unit/adapters/embedded/test_database.py::test_publishing_is_flushed_and_settling_is_not"],
    ),
    Defect(
        "full-dead-letter-queue-drops",
        "A dead-letter queue whose length a policy limits refuses, and drops no letter that it confirmed.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/declare.py",
                '"classic", "x-overflow": "reject-publish"}',
                '"classic"}',
            )
        ],
        ["tests/suites/rabbitmq/test_policies.py::test_a_full_dead_letter_queue_refuses_and_drops_nothing"],
    ),
    Defect(
        "operators-policies-unseen",
        "Of the policies of users and of operators the smaller value holds.",
        [Edit(POLICIES, "for policies in self.sets:", "for policies in self.sets[:1]:")],
        [f"{LIMITS}::test_a_policy_on_the_length_of_the_queue_is_said[True]"],
    ),
    Defect(
        "policies-of-retries-unseen",
        "What a policy does to queues of retries that do not exist yet is said before it does it.",
        [Edit(POLICIES, "            *_of_retries(place, policies, facts),\n", "")],
        [
            f"{LIMITS}::test_retry_queues_that_expire_are_an_error",
            f"{LIMITS}::test_retries_that_come_too_early_are_said",
        ],
    ),
    Defect(
        "silent-delay-queue-used-again",
        "A delay queue that does not confirm is replaced by the next longer delay.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/adapter.py",
                "                self._silent.note(sent.routing_key)\n",
                "",
            )
        ],
        [
            "tests/suites/rabbitmq/test_silent_queue.py::test_a_delay_queue_that_never_confirms_holds_up_no_retry"
        ],
    ),
    Defect(
        "kafka-offset-passes-unsettled",
        "The committed offset of a partition never passes a message that is not settled.",
        [Edit(KAFKA_TRACKER, "self._entries[0].offset if self._entries else self.next", "self.next")],
        [f"{KAFKA}/test_tracker.py::test_the_committed_offset_does_not_pass_an_unsettled_message"],
    ),
    Defect(
        "kafka-unknown-offset-is-none",
        "A partition whose committed offset is not known is not read from elsewhere.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/group_member.py",
                "if partition.error is not None:",
                "if False:",
            )
        ],
        [f"{KAFKA}/test_assignments.py::test_an_offset_that_is_not_known_is_asked_for_again"],
    ),
    Defect(
        "kafka-settled-ahead-forgotten",
        "What is settled behind an unsettled message is told to the next owner of its partition.",
        [Edit(KAFKA_TRACKER, "encode(offset, self._settled_ahead())", "encode(offset, ())")],
        [f"{KAFKA}/test_tracker.py::test_the_next_owner_does_not_deliver_what_was_settled_ahead"],
    ),
    Defect(
        "kafka-metadata-without-limit",
        "The metadata of an offset stays far below what brokers take, or no offset would be committed any more.",
        [Edit(KAFKA_TRACKER, "LONGEST = 1024", "LONGEST = 10**9")],
        [f"{KAFKA}/test_tracker.py::test_metadata_is_short_whatever_was_settled"],
    ),
    Defect(
        "kafka-paused-over-a-loss",
        "A partition that was paused when its member lost it is read when the member gets it again.",
        [Edit("adapters/oncemq_adapters/kafka/group_member.py", "client.resume(list(partitions))", "pass")],
        [f"{KAFKA}/test_assignments.py::test_a_partition_that_comes_back_is_not_paused"],
    ),
    Defect(
        "kafka-refused-metadata-repeated",
        "A broker that takes less metadata than ours gets the offsets without it, or none would be committed any more.",
        [Edit(KAFKA_COMMITS, "self._metadata = False", "pass")],
        [f"{KAFKA}/test_commits.py::test_metadata_that_a_broker_refuses_stops_no_commit"],
    ),
    Defect(
        "kafka-failed-commit-forgotten",
        "Offsets that a broker did not take, during a rebalance for example, are committed again.",
        [Edit(KAFKA_COMMITS, "tracker.uncommitted()", "pass")],
        [f"{KAFKA}/test_commits.py::test_a_commit_that_fails_is_sent_again[27]"],
    ),
    Defect(
        "kafka-retry-removed-before-due",
        "A retry that its topic would not keep until it is due is refused, and its message not passed.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/settlement.py", "if request.delay >= self._kept:", "if False:"
            )
        ],
        [f"{KAFKA}/test_settlement.py::test_a_retry_that_would_be_removed_before_it_is_due_is_refused"],
    ),
    Defect(
        "kafka-refused-login-silent",
        "A member whose login brokers refuse says so, and is not merely without its coordinator.",
        [Edit("adapters/oncemq_adapters/kafka/progress.py", "if is_denied(error):", "if False:")],
        [f"{KAFKA}/test_progress.py::test_a_login_that_is_refused_is_told_until_the_group_is_steady"],
    ),
    Defect(
        "kafka-void-partition-settled",
        "Nothing of a partition that another member has is settled.",
        [
            Edit(KAFKA_TRACKER, "                if self._void:\n", "                if not entry:\n"),
        ],
        [f"{KAFKA}/test_tracker.py::test_nothing_of_a_void_partition_is_settled"],
    ),
    Defect(
        "kafka-unanswered-commit-forgotten",
        "A commit that is never answered is sent again.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/commits.py",
                "            self._again(self._awaited)  # its coordinator has died with it\n",
                "",
            )
        ],
        [f"{KAFKA}/test_commits.py::test_a_commit_that_is_never_answered_is_sent_again"],
    ),
    Defect(
        "kafka-stranger-believed",
        "Attempts that a producer claims do not count on Kafka.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/records.py",
                "_HIDDEN if from_group else _FORGEABLE",
                "_HIDDEN",
            )
        ],
        [f"{KAFKA_TRAPS}::test_a_key_that_is_no_text_is_no_key_and_stays_in_every_copy"],
    ),
    Defect(
        "kafka-topic-made-by-publishing",
        "A broker that makes topics on demand does not get a message that has nowhere to go.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/adapter.py",
                "        if missing:\n",
                "        if missing is None:\n",
            )
        ],
        [f"{KAFKA_TRAPS}::test_a_missing_topic_is_not_made_by_publishing"],
    ),
)
