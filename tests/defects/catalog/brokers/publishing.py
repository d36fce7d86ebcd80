"""Defects of publishing: what is sent, and that it is part of the transaction it was stored in."""

from defects.defect import Defect, Edit

PUBLISHER = "tests/unit/engine/publishers/test_app_publisher.py"
ROWS = "tests/unit/ledger/messages/test_outbox.py"
SENDER = "tests/unit/engine/outbox/test_outbox.py"
DELAYED = "tests/unit/ledger/messages/test_delayed.py"
ANSWERS = "tests/suites/rabbitmq/test_answers.py"
CLIENT_REQUESTS = "tests/suites/rocketmq/test_client_requests.py"
ROCKETMQ_REQUESTS = "adapters/oncemq_adapters/rocketmq_client/producer/requests.py"
ASKING = "tests/suites/rabbitmq/test_requests.py"
UNROUTABLE = "tests/unit/engine/test_outbox_unroutable.py"

DEFECTS = (
    Defect(
        "priority-not-sent",
        "A message is sent with its priority.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/properties.py",
                'priority=_priority(message.headers.get(names.PRIORITY, ""))',
                "priority=None",
            )
        ],
        [
            "tests/suites/rabbitmq/test_publishing.py::test_urgent_messages_come_first_again_after_a_retry_and_a_replay"
        ],
    ),
    Defect(
        "any-text-is-a-priority",
        "A header that is no priority does not keep the messages beside it from being sent.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/properties.py",
                "text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < 256",
                "text",
            )
        ],
        ["tests/unit/handler/test_priority.py::test_a_header_that_is_no_priority_is_none[x]"],
    ),
    Defect(
        "priority-where-nothing-sorts",
        "A priority that no queue of the topic sorts by is refused.",
        [
            Edit(
                "framework/oncemq/message/outgoing.py",
                "if self.highest_priority == 0:",
                "if self.highest_priority == -1:",
            )
        ],
        ["tests/unit/handler/test_priority.py::test_a_priority_that_nothing_sorts_by_is_refused"],
    ),
    Defect(
        "rolled-back-number-is-sent",
        "A message that was rolled back is not sent in the place of the row that has got its number.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                "if still.get(stored.id) == stored.message.message_id",
                "if stored.id in still",
            )
        ],
        [
            "tests/unit/ledger/messages/test_outbox.py::test_a_rolled_back_number_is_not_taken_for_the_next_row"
        ],
    ),
    Defect(
        "confirmed-row-is-sent-again",
        "A row that its broker has confirmed is not sent again by the round that deletes it.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                " AND t.due_at > :until AND t.id <> ALL (CAST(:sent AS bigint[]))",
                " AND t.due_at > :until",
            )
        ],
        [f"{ROWS}::test_what_is_sent_is_deleted_and_holds_nothing_back[postgresql]"],
    ),
    Defect(
        "taken-over-row-is-overtaken",
        "A row that another relay has taken over is sent before the later ones of its key.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                "(t.owner <> :owner OR t.id <> ALL (CAST(:sent AS bigint[])))",
                "t.id <> ALL (CAST(:sent AS bigint[]))",
            )
        ],
        [f"{ROWS}::test_a_sent_row_that_another_relay_took_over_holds_its_key_back[postgresql]"],
    ),
    Defect(
        "confirmed-rows-are-forgotten",
        "What is confirmed while more waits is deleted with the next round, and not left to be sent again.",
        [
            Edit(
                "framework/oncemq/engine/outbox/broker_sender.py",
                "self._claim, self._confirmed, batch, until)",
                "self._claim, (), batch, until)",
            )
        ],
        [
            f"{SENDER}::test_what_is_confirmed_while_more_waits_is_deleted_with_the_next_round[{name}]"
            for name in ("sqlite", "postgresql")
        ],
    ),
    Defect(
        "values-end-their-array",
        "A key with a quote or a backslash is stored as it is, whatever else is stored with it.",
        [
            Edit(
                "framework/oncemq/ledger/sql/array_literals.py",
                """value.replace("\\\\", "\\\\\\\\")""",
                "value",
            )
        ],
        ["tests/unit/ledger/sql/test_array_literals.py::test_texts_are_read_as_they_were"],
    ),
    Defect(
        "stored-beside-the-transaction",
        "A message published with a session is part of that session's transaction.",
        [
            Edit(
                "framework/oncemq/engine/publishers/caller_outbox.py",
                "            _note(session, relay, relay.add(connection, self._scope, messages))",
                "            with connection.engine.begin() as connection:\n"
                "                relay.add(connection, self._scope, messages)",
            )
        ],
        [f"{PUBLISHER}::test_a_rolled_back_transaction_sends_nothing[postgresql]"],
    ),
    Defect(
        "early-by-the-process-clock",
        "A message that was published for later is not sent before its moment by the database's clock.",
        [
            Edit(
                "framework/oncemq/ledger/messages/delayed.py",
                "return and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(dialect))",
                "return TABLE.c.due_at <= now",
            )
        ],
        [f"{DELAYED}::test_a_message_of_a_broken_clock_is_not_released[sqlite]"],
    ),
    Defect(
        "cancelling-holds-up-the-others",
        "A transaction that is about to cancel a message holds up no other message that is due.",
        [
            Edit(
                "framework/oncemq/ledger/messages/delayed.py",
                "skip_locked=can_skip_locked(connection)",
                "skip_locked=False",
            )
        ],
        [f"{DELAYED}::test_what_a_transaction_is_about_to_cancel_is_left_out[postgresql]"],
    ),
    Defect(
        "cancelled-although-published-later",
        "A cancellation covers what was published before it, not what is published after it.",
        [
            Edit(
                "framework/oncemq/ledger/messages/delayed.py",
                "            later = [earlier for earlier in later if not _is_meant(sent, earlier)]\n",
                "",
            )
        ],
        [f"{DELAYED}::test_cancellations_count_for_what_was_published_before_them[sqlite]"],
    ),
    Defect(
        "delays-hold-their-key-back",
        "A message that waits for its moment does not hold back later messages of its key.",
        [
            Edit(
                "framework/oncemq/ledger/messages/delayed.py",
                "        elif sent.waits:\n            later.append(sent)\n",
                "",
            )
        ],
        [f"{DELAYED}::test_a_message_waits_and_is_then_a_row_of_the_outbox[sqlite]"],
    ),
    Defect(
        "any-database-will-do",
        "A session on a database from which no worker sends is refused.",
        [
            Edit(
                "framework/oncemq/engine/publishers/caller_outbox.py",
                "            if found is None:\n                raise Unpublishable(\n"
                '                    "the session is on another database',
                "            found = found or next(iter(self._relays.values()))\n            if found is None:\n"
                '                raise Unpublishable(\n                    "the session is on another database',
            )
        ],
        [f"{PUBLISHER}::test_another_database_is_refused[sqlite]"],
    ),
    Defect(
        "any-refusal-is-unroutable",
        "`unroutable: drop` gives up what has no place at its broker, and nothing that was refused for another reason.",
        [
            Edit(
                "framework/oncemq/engine/outbox/broker_sender.py",
                "if isinstance(error, Unroutable) and self._policy",
                "if self._policy",
            )
        ],
        [f"{UNROUTABLE}::test_another_refusal_waits"],
    ),
    Defect(
        "dead-letter-holds-its-key",
        "A dead letter of the outbox holds back no later message of its key.",
        [
            Edit(
                "framework/oncemq/ledger/messages/outbox_order.py",
                "            TABLE.c.owner != DEAD,\n",
                "",
            )
        ],
        [f"{UNROUTABLE}::test_a_dead_letter_of_the_outbox_holds_back_nothing"],
    ),
    Defect(
        "neighbours-of-a-missing-exchange",
        "What was in flight to another exchange when one was missing is not taken for unroutable.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/confirms.py",
                """if not sent.exchange or f"'{sent.exchange}'" not in str(reason.reply_text):""",
                "if not sent.exchange:",
            )
        ],
        [
            "tests/unit/adapters/rabbitmq/publishing/test_confirms.py::test_a_missing_exchange_is_unroutable_for_its_own_messages_alone"
        ],
    ),
    Defect(
        "wave-shares-its-end",
        "A message for which RabbitMQ ends the connection does not take the others of its wave along.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/publisher.py",
                "else (ClosedFor, Provoked)",
                "else ()",
            )
        ],
        ["tests/suites/rabbitmq/test_traps.py::test_a_message_that_ends_the_connection_takes_no_other_along"],
    ),
    Defect(
        "another-part-is-charged",
        "A single message that was in flight beside the one for which RabbitMQ ends the connection is confirmed.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/publisher.py",
                "deadline=deadline, alone=False)",
                "deadline=deadline, alone=True)",
            )
        ],
        [
            "tests/suites/rabbitmq/test_publishing.py::test_no_other_part_is_charged_for_a_message_that_ends_the_connection"
        ],
    ),
    Defect(
        "large-headers-are-sent",
        "Headers that are more than a broker takes are refused before they are stored.",
        [
            Edit(
                "framework/oncemq/message/outgoing.py",
                "        if size > self._max_headers:\n",
                "        if False:\n",
            )
        ],
        ["tests/unit/message/test_outgoing.py::test_headers_beyond_what_the_broker_takes_are_refused"],
    ),
    Defect(
        "outage-leaves-long-pauses",
        "Rows that were tried while their broker was away are sent soon after it is back.",
        [
            Edit(
                "framework/oncemq/engine/outbox/broker_sender.py",
                "        if isinstance(error, BrokerUnavailable):\n",
                "        if False:\n",
            )
        ],
        ["tests/unit/engine/outbox/test_outbox.py::test_an_outage_leaves_no_long_pauses_behind"],
    ),
    Defect(
        "copy-of-a-request-unanswered",
        "A copy of a request that was applied is answered, also after a death between commit and answer.",
        [
            Edit(
                "framework/oncemq/engine/base/answers.py",
                "if item.verdict is not None and item.verdict.outcome in _ANSWERED:",
                "if item.verdict is not None and item.verdict.outcome is Outcome.PROCEED:",
            )
        ],
        [
            f"{ANSWERS}::test_a_copy_of_a_request_gets_the_same_answer",
            f"{ANSWERS}::test_a_death_between_commit_and_answer_loses_no_answer",
        ],
    ),
    Defect(
        "stranger-chooses-where-we-publish",
        "Answers go to no queue that is not made for them, whatever reply_to says.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/answers.py",
                "not queue.startswith(REPLY_QUEUES)",
                "not queue",
            )
        ],
        [f"{ANSWERS}::test_a_stranger_cannot_have_us_publish_to_any_queue"],
    ),
    Defect(
        "request-waits-in-a-transaction",
        "No request waits for its answer with a transaction of the framework open.",
        [Edit("framework/oncemq/engine/publishers/requests.py", "if is_inside():", "if not is_inside:")],
        [
            "tests/unit/engine/publishers/test_requests.py::test_a_handler_with_a_transaction_may_not_wait[sync_handler]"
        ],
    ),
    Defect(
        "any-answer-is-taken",
        "A request takes no answer but its own.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/requests.py",
                'self._waiting.pop(properties.correlation_id or "", None)',
                "next(iter(self._waiting.values()), None)",
            )
        ],
        [f"{ASKING}::test_an_answer_under_another_correlation_id_is_not_taken"],
    ),
    Defect(
        "answers-lost-with-the-connection",
        "An answer that comes while the requester has no connection is read afterwards.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/publishing/requests.py",
                "        self._channel, self._error = None, error\n",
                "        self._channel, self._error, self._queue = None, error, self._new_name()\n",
            )
        ],
        [f"{ASKING}::test_an_answer_survives_a_lost_connection"],
    ),
    Defect(
        "any-reply-is-taken",
        "A request on RocketMQ takes no reply but its own.",
        [
            Edit(
                ROCKETMQ_REQUESTS,
                'self._waiting.pop(reply.properties.get(CORRELATION, ""), None)',
                "next(iter(self._waiting.values()), None)",
            )
        ],
        [f"{CLIENT_REQUESTS}::test_a_request_gets_its_own_reply"],
    ),
    Defect(
        "requester-not-registered-again",
        "A process that asks registers with a broker again as soon as its connection is lost.",
        [Edit(ROCKETMQ_REQUESTS, "            registration.changed.set()\n", "            pass\n")],
        [f"{CLIENT_REQUESTS}::test_a_request_outlives_its_connection"],
    ),
    Defect(
        "former-connection-forgets-the-requester",
        "A broker that notices the end of a former connection late still knows the process that asks.",
        [Edit(ROCKETMQ_REQUESTS, "if due and time.monotonic() >= due[0]:", "if False:")],
        [f"{CLIENT_REQUESTS}::test_the_end_of_a_former_connection_is_mended"],
    ),
    Defect(
        "packed-reply-is-a-result",
        "A reply is unpacked before it is taken for a result.",
        [Edit(ROCKETMQ_REQUESTS, "Reply(body, from_text(", "Reply(frame.body, from_text(")],
        [f"{CLIENT_REQUESTS}::test_a_packed_reply_is_unpacked"],
    ),
    Defect(
        "requesters-see-inside",
        "A requester is not told what an unexpected exception shows.",
        [
            Edit(
                "framework/oncemq/engine/base/answers.py",
                "if reason in _FOR_REQUESTERS and headers.get(ERROR_TEXT):",
                "if headers.get(ERROR_TEXT):",
            )
        ],
        [f"{ASKING}::test_an_unexpected_error_stays_inside"],
    ),
    Defect(
        "failure-taken-for-a-result",
        "Only who asks for them gets answers that say why a request has failed.",
        [
            Edit(
                "adapters/oncemq_adapters/answers.py",
                "(not failed or ANSWER_FAILURES in delivery.message.headers)",
                "(not failed or delivery.message.headers is not None)",
            )
        ],
        [f"{ASKING}::test_a_client_that_does_not_ask_for_failures_gets_none"],
    ),
)
