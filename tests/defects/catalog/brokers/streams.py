"""Defects of streams on RabbitMQ: positions, the one reader, and what a producer claims."""

from defects.defect import Defect, Edit

STREAMS = "adapters/oncemq_adapters/rabbitmq/consuming/streams.py"
SUITE = "tests/suites/rabbitmq/test_streams.py"

DEFECTS = (
    Defect(
        "stream-position-passes-a-gap",
        "The position in a stream never passes a message that is not settled.",
        [Edit(STREAMS, "return self._offsets[0][1] if self._offsets else self._end", "return self._end")],
        [f"{SUITE}::test_a_gap_keeps_the_position"],
    ),
    Defect(
        "stream-read-by-all",
        "One process of a group reads a stream.",
        [
            Edit(STREAMS, "        if positions.hold():\n", "        if not positions.hold:\n"),
            Edit(
                STREAMS,
                "        if not positions.write({(self._reader.stream, QUEUE): at}):\n",
                "        if not positions.write({(self._reader.stream, QUEUE): at}) and at < 0:\n",
            ),
        ],
        [f"{SUITE}::test_one_member_reads_and_another_takes_over"],
    ),
    Defect(
        "stream-claims-believed",
        "Tries that a message in a stream claims are not believed: none of our copies is there.",
        [
            Edit(
                STREAMS,
                "        # No copy of ours is in a stream.\n        return False",
                "        return True",
            )
        ],
        [f"{SUITE}::test_tries_that_a_producer_claims_are_not_believed"],
    ),
    Defect(
        "stream-made-again-skipped",
        "A stream that ends before the position of a group is not the one that it has read.",
        [Edit(STREAMS, "        if at > end:", "        if at > end + 1_000_000:")],
        [f"{SUITE}::test_a_stream_that_was_made_again_is_said"],
    ),
)
