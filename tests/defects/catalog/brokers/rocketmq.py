"""Defects of RocketMQ's drivers: what is read, copied, settled and committed."""

from defects.defect import Defect, Edit

CODEC = "adapters/oncemq_adapters/rocketmq_client/protocol/message_codec.py"
CODEC_TESTS = "tests/unit/adapters/rocketmq_client/protocol/test_message_codec.py"

DEFECTS = (
    Defect(
        "former-lock-ignored",
        "In a rolling upgrade a queue belongs to one process, of whichever release.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/queue_locks.py",
                'self._former = "" if fifo else f"{group}.handover"',
                'self._former = ""',
            )
        ],
        [
            "tests/suites/rocketmq/test_queue_locks.py::test_a_process_of_the_former_release_keeps_its_queue_until_it_unlocks"
        ],
    ),
    Defect(
        "errors-of-the-client-not-translated",
        "Errors of RocketMQ's client reach the framework as its own.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/errors.py",
                "        if isfunction(method) and",
                "        if False and",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/test_errors.py::test_methods_and_generators_raise_the_frameworks_errors",
            "tests/unit/adapters/rocketmq/test_errors.py::test_an_adapter_without_servers_is_unavailable[RocketMQAdapter]",
        ],
    ),
    Defect(
        "refusal-taken-for-an-outage",
        "What RocketMQ refuses is not tried for ever.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/errors.py",
                "BrokerUnavailable if isinstance(error, RocketMQUnavailable) else BrokerRefused",
                "BrokerUnavailable",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/test_errors.py::test_an_error_of_the_client_becomes_one_of_the_framework[error2-BrokerRefused]"
        ],
    ),
    Defect(
        "sealed-retry-not-opened",
        "A copy that holds its message whole is opened before it is delivered.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/puller.py",
                "decode(body, queue.topic, offset, opened)",
                "decode(body, queue.topic, offset)",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/remoting/consumer/test_puller.py::test_a_retry_that_holds_its_message_whole_is_opened"
        ],
    ),
    Defect(
        "batches-not-taken-apart",
        "The messages of a batch queue arrive one by one.",
        [Edit(CODEC, "    if head is None or outer.trouble or int", "    if True or int")],
        [f"{CODEC_TESTS}::test_a_batch_is_its_messages[False]"],
    ),
    Defect(
        "batch-begins-again",
        "A batch that is read from its middle gives no message again that is settled.",
        [Edit(CODEC, "for part in inner if part.offset >= floor]", "for part in inner]")],
        [f"{CODEC_TESTS}::test_a_batch_that_is_read_from_its_middle_gives_the_rest"],
    ),
    Defect(
        "batch-longer-than-its-offsets",
        "A batch with more messages than it takes offsets covers none of those behind it.",
        [Edit(CODEC, "len(parts) > int(told)", "False")],
        [f"{CODEC_TESTS}::test_a_batch_that_cannot_be_read_is_one_unreadable_message[data2]"],
    ),
    Defect(
        "brokers-id-first",
        "A message keeps its id when a Java member gives it back.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/properties.py",
                "    return properties.get(UNIQUE_ID) or properties.get(ORIGIN_ID)\n",
                "    return properties.get(ORIGIN_ID) or properties.get(UNIQUE_ID)\n",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/test_properties.py::test_the_id_of_the_producers_client_is_a_messages_id"
        ],
    ),
    Defect(
        "retries-in-the-apps-name",
        "A consumer's retries need no rights but those of Java's consumer.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/producer/retry_copies.py",
                "        sender=group,\n",
                "",
            )
        ],
        ["tests/suites/rocketmq/test_permissions.py::test_the_rights_of_a_java_consumer_are_enough"],
    ),
    Defect(
        "large-properties-not-sealed",
        "A copy whose properties are too long holds its original in the body.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/producer/retry_copies.py",
                "    if fits(properties):\n",
                "    if True:\n",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_sealed_copies.py::test_properties_at_the_limit_come_back"],
    ),
    Defect(
        "packing-lost",
        "A body that cannot be unpacked stays marked as packed.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/producer/retry_copies.py",
                "        packing=packing,\n",
                "",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/test_sealed_copies.py::test_a_body_that_cannot_be_unpacked_stays_packed"
        ],
    ),
    Defect(
        "fifo-retries-not-counted",
        "A retry that this process holds counts as one.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/held_retries.py",
                "    again.ours = True\n",
                "",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/test_sealed_copies.py::test_a_retry_that_this_process_holds_is_counted"
        ],
    ),
    Defect(
        "forged-waiting-believed",
        "Since when a message waits is not its producer's to say.",
        [
            Edit(
                "framework/oncemq/message/headers.py",
                "        TRIED,\n        WAITING_SINCE,\n",
                "        TRIED,\n",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_forgery.py::test_a_stranger_writes_no_history"],
    ),
    Defect(
        "mark-with-an-origin-believed",
        "A mark that names what is no text removes nothing.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/dead_letters.py",
                "return [name for name in found if isinstance(name, str)] if isinstance(found, list) else ()",
                "return list(found)",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_forgery.py::test_only_the_groups_own_marks_count"],
    ),
    Defect(
        "settled-past-a-gap",
        "What is committed stops at the first unsettled message.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/process_queue.py",
                "if offset not in self._flight or offset in self._claimed:",
                "if False:",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/remoting/consumer/test_process_queue.py::test_an_offset_is_settled_once"
        ],
    ),
    Defect(
        "lost-queue-advances",
        "Nothing of a queue that was lost is delivered or settled.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/process_queue.py",
                "            if self.pulling or self.lost or self.draining or self.next is None:",
                "            if self.lost or self.draining or self.next is None:",
            )
        ],
        ["tests/unit/adapters/rocketmq/remoting/consumer/test_process_queue.py::test_one_poll_at_a_time"],
    ),
    Defect(
        "settled-comes-again",
        "What was settled before a loss does not come again.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/process_queue.py",
                "                [message for message in messages if message.offset not in self._skip]\n"
                "                if self._skip\n"
                "                else messages\n",
                "                messages\n",
            )
        ],
        [
            "tests/unit/adapters/rocketmq/remoting/consumer/test_process_queue.py::test_what_was_settled_before_a_loss_does_not_come_again"
        ],
    ),
    Defect(
        "unknown-layout-ends-the-pull",
        "A message whose layout is unknown holds up no other.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/message_codec.py",
                "            message = _unreadable(data[at : at + size], topic, expected, error)",
                "            raise MalformedFrame(str(error)) from error",
            )
        ],
        [
            "tests/unit/adapters/rocketmq_client/protocol/test_message_codec.py::test_an_unknown_layout_holds_up_no_other"
        ],
    ),
    Defect(
        "body-unpacked-without-limit",
        "A small body does not become a huge one.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/message_codec.py",
                "plain = inflater.decompress(body, LARGEST_BODY + 1)\n            complete = inflater.eof and len(plain) <= LARGEST_BODY",
                "plain = inflater.decompress(body)\n            complete = inflater.eof",
            )
        ],
        [
            "tests/unit/adapters/rocketmq_client/protocol/test_message_codec.py::test_a_pull_of_bombs_takes_little_memory"
        ],
    ),
    Defect(
        "unpacked-all-at-once",
        "A small packed body takes little memory.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/message_codec.py",
                "inflater.read(_PART)",
                "inflater.read(LARGEST_BODY)",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_forgery.py::test_a_small_packed_body_takes_little_memory"],
    ),
    Defect(
        "pull-unpacked-as-a-whole",
        "A pull of many packed bodies takes little memory, though each is within its limit.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/message_codec.py",
                "if unpacked >= UNPACKED_AT_ONCE:",
                "if unpacked < 0:",
            )
        ],
        [
            "tests/unit/adapters/rocketmq_client/protocol/test_message_codec.py::test_a_pull_is_cut_where_enough_is_unpacked"
        ],
    ),
    Defect(
        "unpacked-bytes-not-counted",
        "A window of small packed bodies does not take gigabytes.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/prefetch_window.py",
                "while waiting and len(found) < room and self._unpacked < MOST_UNPACKED:",
                "while waiting and len(found) < room:",
            ),
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/prefetch_window.py",
                "            and self._unpacked < MOST_UNPACKED\n",
                "",
            ),
        ],
        ["tests/suites/rocketmq/test_packed_bodies.py::test_unpacked_bytes_are_counted"],
    ),
    Defect(
        "decompressed-body-waits",
        "Messages with compressed bodies wait for their run without what was decompressed.",
        [
            Edit(
                "framework/oncemq/engine/consumer/receiver.py",
                "hidden = CONTENT_ENCODING in delivery.message.headers or",
                "hidden =",
            )
        ],
        ["tests/unit/engine/consumer/test_receiver.py::test_what_waits_holds_no_decompressed_body"],
    ),
    Defect(
        "header-gives-orders",
        "A header of an application cannot give orders to the broker.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/properties.py",
                "        or name in _RESERVED\n        or name == TAGS_HEADER",
                "        or name == TAGS_HEADER",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_properties.py::test_a_header_cannot_give_orders_to_the_broker"],
    ),
    Defect(
        "several-keys-are-one",
        "Keys with blanks arrive as they were.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/properties.py",
                "        properties[EXACT_KEYS] = json.dumps(list(keys))",
                "        pass",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_properties.py::test_any_key_arrives"],
    ),
    Defect(
        "history-travels-on",
        "A copy carries no history of its original's way.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/properties.py",
                "items() if not is_history(name)}\n    copy",
                "items()}\n    copy",
            )
        ],
        ["tests/unit/adapters/rocketmq/test_properties.py::test_history_does_not_travel_on"],
    ),
    Defect(
        "locks-hash-otherwise",
        "Queues are shared as Java's members share them.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq_client/protocol/heartbeat.py",
                '// 2}H", data):',
                '// 2}H", data)[::-1]:',
            )
        ],
        ["tests/unit/adapters/rocketmq/remoting/consumer/test_process_queue.py::test_texts_hash_as_in_java"],
    ),
)
