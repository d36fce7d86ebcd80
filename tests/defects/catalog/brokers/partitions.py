"""Defects of a partitioned topic on RabbitMQ: the order of a key when its partition changes its process."""

from defects.defect import Defect, Edit

PARTITIONS = "adapters/oncemq_adapters/rabbitmq/consuming/partitions.py"
SUITE = "tests/suites/rabbitmq/test_partitions.py"

DEFECTS = (
    Defect(
        "partition-gives-back-one-by-one",
        "What a partition's consumer gives back is delivered before what it had received later.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/consuming/channel_deliveries.py",
                "        close = self._close\n        if close is None:",
                "        close = None\n        if close is None:",
            )
        ],
        [
            f"{SUITE}::test_what_a_member_gives_back_comes_before_what_it_had_received_later[leaves-quorum]",
        ],
    ),
    Defect(
        "partition-given-up-by-a-cancel",
        "The next member of a partition begins with what the former one had not settled.",
        [
            Edit(
                "adapters/oncemq_adapters/rabbitmq/connection/pika_connection.py",
                "consumers.clear()",
                "consumers.copy()",
            )
        ],
        [
            f"{SUITE}::test_what_a_member_had_not_begun_comes_before_what_waits_in_the_queue[leaves-quorum]",
            f"{SUITE}::test_what_a_member_had_not_begun_comes_before_what_waits_in_the_queue[pauses-quorum]",
        ],
    ),
    Defect(
        "partition-given-up-while-it-runs",
        "A member gives up a partition when what it has begun of it is settled.",
        [
            Edit(
                PARTITIONS,
                "if not intake.leave(len(waiting)):",
                "if not intake.leave(len(waiting)) and intake is None:",
            )
        ],
        [f"{SUITE}::test_a_partition_is_given_up_only_when_what_runs_is_settled"],
    ),
    Defect(
        "partition-window-by-share",
        "The window of a partition does not depend on how many others a member has: a smaller one returns a part of what came back.",
        [
            Edit(PARTITIONS, "self._window = max(1, self._window // among)", "self._most = self._window"),
            Edit(
                PARTITIONS,
                "                part.want()",
                "                part._window = part._window if part.wanted else part._most // len(mine)\n                part.want()",
            ),
        ],
        [f"{SUITE}::test_what_comes_back_twice_keeps_its_order[quorum]"],
    ),
    Defect(
        "partition-given-up-before-the-returned",
        "A member with a smaller window than the one before runs what that one returned before it gives the partition up.",
        [
            Edit(
                PARTITIONS,
                "if now < self._leave_by and not intake.has_all_returned(now):",
                "if now < self._leave_by and intake is None:",
            )
        ],
        [f"{SUITE}::test_a_member_runs_what_came_back_before_it_gives_a_partition_up"],
    ),
    Defect(
        "partition-kept-for-the-returned",
        "What came back and is not run keeps a partition for some seconds only.",
        [
            Edit(
                PARTITIONS,
                "self._leave_by = time.monotonic() + RETURNED_WITHIN",
                "self._leave_by = time.monotonic() + 60",
            )
        ],
        [f"{SUITE}::test_a_member_does_not_wait_for_ever_to_give_a_partition_up"],
    ),
)
