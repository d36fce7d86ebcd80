"""Defects by which one message could stop its consumer, or lose what it was."""

from defects.defect import Defect, Edit

FORGERY = "tests/unit/adapters/rocketmq/test_forgery.py"
HOSTILE = "tests/suites/rabbitmq/test_hostile.py"

DEFECTS = (
    Defect(
        "unreadable-headers-end-the-connection",
        "A header frame with properties that pika cannot read is one message's trouble.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/connection/pika_connection.py",
                "return _header_frame(self._frame_buffer) or super()._read_frame()",
                "return super()._read_frame()",
            )
        ],
        [f"{HOSTILE}::test_large_messages_are_no_other_matter"],
    ),
    Defect(
        "unreadable-copy-not-sealed",
        "A dead letter that other clients could not read holds its original in the body.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/forwarding.py",
                "if properties.fault is not None:",
                "if False:",
            )
        ],
        ["tests/unit/adapters/rabbitmq/messages/test_forwarding.py::test_what_pika_cannot_read_is_sealed"],
    ),
    Defect(
        "our-headers-push-it-over",
        "A copy's properties fit into a frame.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/forwarding.py",
                "if len(written) <= MOST_BYTES:",
                "if True:",
            )
        ],
        ["tests/unit/adapters/rabbitmq/messages/test_forwarding.py::test_a_copy_fits_into_a_frame"],
    ),
    Defect(
        "refused-copy-tried-for-ever",
        "One message that its broker refuses holds up no other.",
        [
            Edit(
                "framework/oncemq/engine/settlement/settler.py",
                "refusals[failure.delivery] >= _REFUSALS",
                "False",
            )
        ],
        ["tests/unit/engine/settlement/test_refused_settlements.py::test_what_no_broker_takes_is_kept"],
    ),
    Defect(
        "refused-dead-letter-dropped",
        "What no broker takes is kept in the ledger.",
        [
            Edit(
                "framework/oncemq/engine/settlement/settler.py",
                "if broken and self._keep is not None:",
                "if False:",
            )
        ],
        ["tests/unit/engine/settlement/test_refused_settlements.py::test_what_no_broker_takes_is_kept"],
    ),
    Defect(
        "raw-form-not-parked",
        "Parking keeps the bytes that the broker sent.",
        [
            Edit(
                "framework/oncemq/ledger/messages/parked_row.py",
                "raw = [] if message.raw is None else",
                "raw = [] if True else",
            )
        ],
        ["tests/unit/ledger/messages/test_dead_letters.py::test_whatever_a_message_holds_is_kept"],
    ),
    Defect(
        "unstorable-message-pauses",
        "A message without a form for the ledger is dead-lettered alone.",
        [
            Edit(
                "framework/oncemq/engine/parking/parking_strategies.py",
                "if (wrong := unstorable(message)) is not None:",
                "if (wrong := None) is not None:",
            )
        ],
        [
            "tests/unit/engine/parking/test_parking.py::test_a_message_that_cannot_be_stored_is_one_dead_letter"
        ],
    ),
    Defect(
        "forged-origin-believed",
        "A failed message comes back to the topic where it lay, not to one that its producer names.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/producer/retry_copies.py",
                'if not stored.topic.startswith("%"):',
                "if False:",
            )
        ],
        [f"{FORGERY}::test_a_failed_message_comes_back_to_its_own_topic"],
    ),
    Defect(
        "forged-tries-of-rocketmq-believed",
        "Tries before count only from the group's own topics.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/prefetch_window.py",
                "by_stranger(stored.properties)",
                "stored.properties",
            )
        ],
        [f"{FORGERY}::test_a_stranger_writes_no_history"],
    ),
    Defect(
        "forged-mark-believed",
        "A dead letter with the tag of a mark removes nothing.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/dead_letters.py",
                "== REMOVED and not origin_of(stored)",
                "== REMOVED",
            )
        ],
        [f"{FORGERY}::test_only_the_groups_own_marks_count"],
    ),
    Defect(
        "forged-history-by-exchange",
        "On RabbitMQ a message that came by an exchange says nothing of tries before.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/messages/properties.py",
                "hidden = _HISTORY if from_group else _HIDDEN_FROM_STRANGERS",
                "hidden = _HISTORY",
            )
        ],
        ["tests/unit/adapters/rabbitmq/messages/test_forwarding.py::test_a_stranger_writes_no_history"],
    ),
    Defect(
        "unsigned-history-believed",
        "With `history_key`, attempts that a stranger claims in the group's own queue do not count.",
        [
            Edit(
                "framework/oncemq/engine/consumer/receiver.py",
                "if self._keys is None or delivery.source is not None:",
                "if self._keys is not None or delivery.source is not None:",
            )
        ],
        ["tests/hostile/test_signed_history.py::test_attempts_that_a_stranger_claims_do_not_count"],
    ),
    Defect(
        "signature-can-be-moved",
        "The signature of a message's attempts belongs to one group, one topic and one identity.",
        [
            Edit(
                "framework/oncemq/message/signed_history.py",
                "json.dumps([place, identity, ",
                'json.dumps(["", "", ',
            )
        ],
        ["tests/unit/message/test_signed_history.py::test_a_signature_cannot_be_moved"],
    ),
    Defect(
        "claims-beside-the-signed-believed",
        "A stranger's claim that a copy keeps beside the signed ones does not count.",
        [
            Edit(
                "framework/oncemq/message/signed_history.py",
                "return _without(message, beside) if beside else message",
                "return message",
            )
        ],
        ["tests/unit/message/test_signed_history.py::test_claims_beside_the_signed_ones_are_dropped"],
    ),
)
