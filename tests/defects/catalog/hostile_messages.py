"""Defects by which one message could stop its consumer, or lose what it was."""

from defects.defect import Defect, Edit

RABBITMQ = "adapters/oncemq_adapters/rabbitmq"
HOSTILE = "tests/suites/test_rabbitmq_hostile.py"

DEFECTS = (
    Defect(
        "unreadable-headers-end-the-connection",
        "A header frame with properties that pika cannot read is one message's trouble.",
        [
            Edit(
                f"{RABBITMQ}/connection.py",
                "return _header_frame(self._frame_buffer) or super()._read_frame()",
                "return super()._read_frame()",
            )
        ],
        [f"{HOSTILE}::test_large_messages_are_no_other_matter"],
    ),
    Defect(
        "unreadable-copy-not-sealed",
        "A dead letter that other clients could not read holds its original in the body.",
        [Edit(f"{RABBITMQ}/hops.py", "if properties.fault is not None:", "if False:")],
        ["tests/unit/adapters/rabbitmq/test_hops.py::test_what_pika_cannot_read_is_sealed"],
    ),
    Defect(
        "our-headers-push-it-over",
        "A copy's properties fit into a frame.",
        [Edit(f"{RABBITMQ}/hops.py", "if len(written) <= MOST_BYTES:", "if True:")],
        ["tests/unit/adapters/rabbitmq/test_hops.py::test_a_copy_fits_into_a_frame"],
    ),
)
