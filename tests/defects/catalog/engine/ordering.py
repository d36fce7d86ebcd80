"""Defects of order: a key has one owner, and nothing of it overtakes."""

from defects.defect import Defect, Edit

SCHEDULER = "framework/oncemq/engine/consumer/scheduler.py"
VALUES = "framework/oncemq/engine/consumer/value_limit.py"
FILL = "framework/oncemq/engine/consumer/batch_fill.py"
BY_VALUE = "tests/unit/engine/consumer/test_value_limit.py"
FILLING = "tests/unit/engine/consumer/test_batch_fill.py"
SCHEDULING = "tests/unit/engine/consumer/test_scheduler.py"
ROUTES = "tests/unit/handler/test_route_settings.py"
PARTITIONS = "tests/suites/rabbitmq/test_partitions.py"
TOPICS = "tests/unit/engine/consumer/test_several_topics.py"
PARKED = "framework/oncemq/engine/parking/parked_source.py"

DEFECTS = (
    Defect(
        "value-without-limit",
        "No more messages of a value are in work than its consumer allows.",
        [Edit(VALUES, "        if count >= self._limit:\n", "        if False:\n")],
        [f"{BY_VALUE}::test_no_more_of_a_value_are_in_work_than_its_limit"],
    ),
    Defect(
        "compressed-without-limit",
        "The limit of a value holds for bodies that are decoded again when they run.",
        [
            Edit(
                "framework/oncemq/engine/consumer/receiver.py",
                "self.values.note(delivery, payload)",
                "self.values.note(delivery, None if CONTENT_ENCODING in delivery.message.headers else payload)",
            )
        ],
        [f"{BY_VALUE}::test_a_consumer_keeps_to_it[compressed]"],
    ),
    Defect(
        "no-room-overtaken",
        "Nothing of a key overtakes its message that has no room.",
        [
            Edit(
                SCHEDULER,
                "(waiting[key] or not values.enter(delivery))",
                "not values.enter(delivery)",
            )
        ],
        [f"{BY_VALUE}::test_a_key_waits_whole_behind_one_that_has_no_room"],
    ),
    Defect(
        "room-of-the-lost",
        "Room that was given to a message which is lost goes to the next of its value.",
        [
            Edit(
                SCHEDULER,
                "                    self._give_room([values.value_of(delivery)])\n",
                "                    pass\n",
            )
        ],
        [f"{BY_VALUE}::test_what_is_lost_or_released_gives_its_room_to_the_next"],
    ),
    Defect(
        "group-overtakes-in-its-key",
        "A batch of one value has no message whose key has an earlier one of another value.",
        [Edit(FILL, "                blocked.add(delivery.key)\n", "")],
        [f"{FILLING}::test_nothing_of_a_key_overtakes_its_message_of_another_group"],
    ),
    Defect(
        "batch-of-two-values",
        "All messages of a batch have the same value.",
        [Edit(FILL, "group_of(delivery) == self._chosen and ", "")],
        [f"{FILLING}::test_a_batch_has_messages_of_one_value"],
    ),
    Defect(
        "batch-of-a-type-mixed",
        "Values of different types are different values of a batch.",
        [Edit(FILL, 'value if type(value) is str else "\\0" + repr(value)', "str(value)")],
        [f"{FILLING}::test_values_of_unlike_types_are_unlike['1']"],
    ),
    Defect(
        "batch-waits-for-ever",
        "A message waits for others of its batch no longer than it may.",
        [
            Edit(FILL, " or oldest[group] + within <= now]", "]"),
            Edit(FILL, "min(oldest.values(), default=_NOT_BEFORE_CHANGE) + within", "_NOT_BEFORE_CHANGE"),
        ],
        [f"{FILLING}::test_a_message_waits_for_others_no_longer_than_it_may"],
    ),
    Defect(
        "batch-waits-with-a-full-prefetch",
        "A batch does not wait for messages that cannot arrive.",
        [Edit(FILL, "        elif oldest and self._free <= 0:\n", "        elif False:\n")],
        [f"{FILLING}::test_a_full_prefetch_ends_the_wait"],
    ),
    Defect(
        "until-idle-waits-for-a-batch",
        "A run until idle ends in its time, though batches might wait longer.",
        [
            Edit(
                "framework/oncemq/engine/application.py",
                "crew.consumer.scheduler.hurry(until.idle.total_seconds())",
                "pass",
            )
        ],
        ["tests/scenarios/test_batches.py::test_a_run_until_idle_waits_for_no_batch"],
    ),
    Defect(
        "turn-given-to-another-topic",
        "A parked message whose turn has come is run by the workers of its own topic, which read it as it was meant.",
        [Edit(PARKED, "if self._topic is not None and (others", "if self._topic is False and (others")],
        [f"{TOPICS}::test_a_message_that_waits_for_one_of_the_other_topic_is_applied_after_it"],
    ),
    Defect(
        "woken-topic-sleeps-on",
        "A message of another topic whose turn has come is due at once.",
        [Edit(PARKED, "            parking.wake(connection, others, now, now + LEASE)\n", "")],
        [f"{TOPICS}::test_a_message_that_waits_for_one_of_the_other_topic_is_applied_after_it"],
    ),
    Defect(
        "topics-with-unlike-identities",
        "Topics of one consumer have identities of the same parts, or one message would take effect once for each.",
        [
            Edit(
                "framework/oncemq/config/build/settling.py",
                "if _parts(first) != _parts(other):",
                "if False:",
            )
        ],
        [
            f"{TOPICS}::test_what_cannot_be_promised_is_refused[options8-has 1 part(s) in topic 'orders' and 2 in 'orders.old']"
        ],
    ),
    Defect(
        "workers-of-topics-share-a-recorder",
        "Each worker has a flight recorder of its own, also where a consumer's topics have one scope.",
        [Edit("framework/oncemq/engine/consumer_runtime.py", "plan.place * _SEATS + number", "number")],
        [f"{TOPICS}::test_the_workers_of_each_topic_have_recorders_of_their_own"],
    ),
    Defect(
        "key-with-two-owners",
        "A key has one owner at a time: a second worker cannot break its order.",
        [Edit(SCHEDULER, "            elif key in waiting:\n", "            elif False:\n")],
        [f"{SCHEDULING}::test_a_key_has_one_owner"],
    ),
    Defect(
        "late-arrival-overtakes",
        "What arrives for an owned key waits behind everything of that key.",
        [
            Edit(
                SCHEDULER,
                "            self._ready.extend(deliveries)\n",
                "            for one in deliveries:\n                self._waiting.get(one.key, self._ready).append(one)\n",
            )
        ],
        [f"{SCHEDULING}::test_a_late_arrival_does_not_overtake_what_waited_before"],
    ),
    Defect(
        "route-overtakes-a-route",
        "A message with another chain of strategies does not run before an earlier one of its key.",
        [
            Edit(
                "framework/oncemq/engine/workers/placement.py",
                "after = last.get(delivery.key, 0)",
                "after = 0",
            )
        ],
        [
            "tests/unit/engine/workers/test_placement.py::test_a_message_never_runs_before_an_earlier_one_of_its_key"
        ],
    ),
    Defect(
        "route-without-the-order",
        "A route with strategies of its own has those that order the messages of a key.",
        [
            Edit(
                "framework/oncemq/config/build/consumers/route_rules.py",
                "for name in usual.keys() - own.keys():",
                "for name in ():",
            )
        ],
        [f"{ROUTES}::test_what_routes_cannot_have_is_refused_at_its_line[leaves out the order]"],
    ),
    Defect(
        "identity-of-another-route",
        "No message of a route with a key or identity of its own counts as a copy of another route's message.",
        [Edit("framework/oncemq/config/build/reading/reader.py", 'value if own else ""', '""')],
        [f"{ROUTES}::test_key_and_identity_may_differ_by_route"],
    ),
    Defect(
        "returned-go-to-the-end",
        "What was not started goes back to the head of its key's queue.",
        [
            Edit(
                SCHEDULER,
                "for delivery in reversed(back):\n                if delivery.key in keys:\n"
                "                    self._waiting[delivery.key].appendleft(",
                "for delivery in back:\n                if delivery.key in keys:\n"
                "                    self._waiting[delivery.key].append(",
            )
        ],
        [f"{SCHEDULING}::test_what_goes_back_runs_first"],
    ),
    Defect(
        "lost-generation-handed-out",
        "Deliveries of a lost connection are void and not run.",
        [Edit(SCHEDULER, "if expired or (lost and delivery.source is None):", "if expired:")],
        [f"{SCHEDULING}::test_a_lost_generation_is_not_handed_out"],
    ),
    Defect(
        "expired-lease-handed-out",
        "A delivery whose lease has ended is not run: another process may have it.",
        [Edit(SCHEDULER, "if expired or (", "if (")],
        [f"{SCHEDULING}::test_an_expired_lease_is_not_handed_out"],
    ),
    Defect(
        "successors-overtake-a-rerun",
        "After a retry its key's later messages wait, also when the unit runs again.",
        [
            Edit(
                "framework/oncemq/engine/base/items.py",
                "        if verdict.holds_key:\n",
                "        if False:\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_rescue.py::test_successors_wait_behind_a_retry_that_rolled_back_its_unit[sqlite-whole]"
        ],
    ),
    Defect(
        "successors-overtake-their-part",
        "After a retry its key's later messages wait, also in the parts of a unit that follow.",
        [
            Edit(
                "framework/oncemq/engine/base/items.py",
                "RETURNED if delivery.key in waiting else verdicts.get(delivery)",
                "verdicts.get(delivery)",
            ),
            Edit(
                "framework/oncemq/engine/transaction/savepoint_batches.py",
                "[item for item in part if item.key not in done.held]",
                "part",
            ),
        ],
        [
            "tests/unit/engine/transaction/test_savepoints.py::test_successors_in_later_parts_wait_behind_a_retry[sqlite]"
        ],
    ),
    Defect(
        "successors-overtake-a-dropped-item",
        "After a retry its key's later messages wait, also when the run goes on without it.",
        [
            Edit(
                "framework/oncemq/engine/transaction/item_loop.py",
                "            elif verdict.holds_key:\n",
                "            elif False:\n",
            )
        ],
        [
            "tests/unit/engine/transaction/test_commit_order.py::test_successors_wait_behind_a_dropped_item[sqlite-whole]"
        ],
    ),
    Defect(
        "time-budget-ignored",
        "A unit ends with its time budget, so that no unit holds locks for seconds.",
        [Edit("framework/oncemq/engine/transaction/item_loop.py", "(started and now > deadline)", "False")],
        ["tests/unit/engine/transaction/test_rescue.py::test_the_time_budget_cuts_a_unit[sqlite-whole]"],
    ),
    Defect(
        "deadlocked-units-not-exclusive",
        "After a deadlock the consumer's units run one at a time.",
        [
            Edit(
                "framework/oncemq/engine/consumer/contention.py",
                "            self._left = self._stretch\n",
                "",
            )
        ],
        ["tests/unit/engine/consumer/test_contention.py::test_a_deadlock_makes_units_exclusive"],
    ),
    Defect(
        "exclusive-units-of-others-unseen",
        "A process that waited for another one's exclusive unit becomes exclusive, too, instead of deadlocking with it.",
        [
            Edit(
                "framework/oncemq/engine/workers/failure_isolation.py",
                "                self._lane.ran(self._lane.now() - began)\n",
                "",
            )
        ],
        ["tests/unit/engine/workers/test_standing_still.py::test_a_slow_unit_is_followed_by_a_look"],
    ),
    Defect(
        "exclusive-lane-not-locked",
        "Exclusive means: over all processes, by a lock in the database.",
        [
            Edit(
                "framework/oncemq/ledger/records/exclusive_units.py",
                '        connection.execute(_ADVISORY, {"name": f"oncemq lane {consumer}"})\n',
                "        return\n",
            )
        ],
        [
            "tests/unit/ledger/records/test_exclusive_units.py::test_an_exclusive_unit_waits_for_the_other[postgresql]"
        ],
    ),
    Defect(
        "freed-message-sleeps-for-ever",
        "A parked message that waits for its own turn is not put back among those that something before them wakes.",
        [
            Edit(
                "framework/oncemq/ledger/messages/parking.py",
                "where(_T.id.in_(sorted(ids)), _T.held)",
                "where(_T.id.in_(sorted(ids)))",
            )
        ],
        ["tests/unit/ledger/messages/test_parking.py::test_a_row_that_is_not_held_any_more_keeps_its_turn"],
    ),
    Defect(
        "hand-over-without-drain",
        "A partition is given up only when everything that runs of it is settled.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/channel_deliveries.py",
                "return self._tracker.unsettled() <= self._left",
                "return True",
            )
        ],
        [f"{PARTITIONS}::test_a_partition_is_given_up_only_when_what_runs_is_settled"],
    ),
    Defect(
        "several-active-consumers",
        "The broker delivers a partition to one consumer only, also while members disagree about its owner.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/declare.py",
                'arguments["x-single-active-consumer"] = True',
                'arguments["x-single-active-consumer"] = False',
            )
        ],
        [f"{PARTITIONS}::test_a_partition_is_given_up_only_when_what_runs_is_settled"],
    ),
    Defect(
        "released-delivery-forgotten",
        "A delivery that a worker returns while its partition is given up is told to the adapter, which waits for it.",
        [
            Edit(
                SCHEDULER,
                "released.append(delivery)",
                "pass",
            )
        ],
        [f"{SCHEDULING}::test_what_a_worker_returns_of_a_released_generation_is_handed_back"],
    ),
    Defect(
        "partitions-left-with-messages",
        "Queues of another number of partitions are left only when nothing waits in them.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/topology/partitions.py",
                "if left := list(_left_in(connection, there)):",
                "if left := list(_left_in(connection, [])):",
            )
        ],
        [f"{PARTITIONS}::test_another_number_of_partitions_is_refused_while_messages_wait"],
    ),
    Defect(
        "held-messages-taken-twice",
        "A parked message that a worker has taken, and will run in a later unit, is not taken from the ledger once more.",
        [
            Edit(
                "framework/oncemq/engine/consumer/consumer.py",
                "return [*self.scheduler.snapshot(), *(delivery for held in self.holders for delivery in held())]",
                "return [*self.scheduler.snapshot()]",
            )
        ],
        [
            "tests/suites/kit/test_route_settings.py::test_a_key_keeps_its_order_over_routes_and_retries[memory]",
            "tests/suites/kit/test_route_settings.py::test_a_key_keeps_its_order_over_routes_and_retries[real]",
        ],
    ),
)
