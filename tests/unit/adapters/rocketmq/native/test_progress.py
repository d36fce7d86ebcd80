"""What a group has finished is told without ever going beyond a message that it has not."""

from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

QUEUE = Queue("broker", "topic", 0)


def _stored(offset: int) -> StoredMessage:
    return StoredMessage("topic", b"x", {}, offset, 0, 0, 0, 0)


def test_gap_is_never_passed() -> None:
    """The end of the settled prefix is before the first message that is not settled."""
    progress = Progress("group")
    progress.settled((QUEUE, offset) for offset in (0, 1, 3))
    assert progress._advanced(QUEUE, 0) == 2


def test_message_before_a_settled_one_is_moved() -> None:
    """What lies before something settled is sent on, and then counts as settled; what lies behind stays."""
    progress = Progress("group")
    progress.received(QUEUE, [_stored(offset) for offset in (0, 1, 2)])
    progress.settled([(QUEUE, 1)])
    progress.move(lambda _queue, messages: messages)
    assert progress._advanced(QUEUE, 0) == 2
