"""Defects of a broadcast: an instance that takes messages from another one, or loses its own."""

from defects.defect import Defect, Edit

DECLARED = "tests/unit/config/build/test_broadcast.py"
POSITIONS = "tests/unit/ledger/coordination/test_broadcast.py"
MESSAGES = "tests/unit/engine/parking/test_instance_messages.py"

DEFECTS = (
    Defect(
        "instances-share-records",
        "What one instance has applied is no duplicate for another one.",
        [
            Edit(
                "framework/oncemq/config/model/consumer_settings.py",
                'return f"{name}{AT}{self.instance}" if self.instance else name',
                "return name",
            )
        ],
        [f"{DECLARED}::test_the_ledger_keeps_an_instance_apart"],
    ),
    Defect(
        "instances-share-a-column",
        "No strategy decides for an instance by what another one has written.",
        [
            Edit(
                "framework/oncemq/config/build/consumer_rules.py",
                'if columns := ", ".join(strategy.owns()):',
                'if columns := "":',
            )
        ],
        [f"{DECLARED}::test_what_instances_share_decides_for_none_of_them[table]"],
    ),
    Defect(
        "instance-in-two-processes",
        "One process is an instance: another one would get its messages instead.",
        [
            Edit(
                "framework/oncemq/ledger/coordination/broadcast.py",
                "if not self._hold(connection):",
                "if False:",
            )
        ],
        [f"{POSITIONS}::test_one_process_is_an_instance[sqlite]"],
    ),
    Defect(
        "instance-retry-not-stored",
        "A message of an instance is acknowledged when its retry or dead letter is stored.",
        [
            Edit(
                "framework/oncemq/engine/parking/instance_messages.py",
                "[each for each in deliveries if each not in lost]",
                "[each for each in deliveries if each not in ()]",
            )
        ],
        [f"{MESSAGES}::test_what_is_not_stored_is_not_acknowledged"],
    ),
    Defect(
        "added-queue-skipped-by-an-instance",
        "A queue that did not exist when an instance began is read from its beginning.",
        [
            Edit(
                "adapters/oncemq_adapters/rocketmq/remoting/consumer/broadcast.py",
                "self._new(queue, FIRST if positions else start, new=not positions)",
                "self._new(queue, start, new=not positions)",
            )
        ],
        ["tests/suites/rocketmq/test_broadcast.py::test_a_queue_that_is_added_is_read_from_its_beginning"],
    ),
)
