"""One queue while it is ours: settled once, committed as far as everything is settled, void when lost."""

from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq_client.protocol import StoredMessage
from oncemq_adapters.rocketmq_client.protocol.heartbeat import java_hash


def message(offset: int) -> StoredMessage:
    """Return a message at this offset."""
    return StoredMessage("t", b"x", {}, offset, 0, 0, 0, 0)


def queue(*offsets: int, following: int) -> ProcessQueue:
    """Return a queue with these messages in flight."""
    made = ProcessQueue(("t", "broker", 0), 1)
    made.begin(0, 0, ())
    made.advance(following, [message(offset) for offset in offsets])
    return made


def settle(queue: ProcessQueue, *offsets: int) -> list[bool]:
    """Claim and finish these; return which could be claimed."""
    claimed = [queue.claim(offset) for offset in offsets]
    queue.finish([offset for offset, mine in zip(offsets, claimed, strict=True) if mine])
    return claimed


def test_the_prefix_stops_at_what_is_unsettled() -> None:
    """Whatever is settled behind a gap, nothing of it is committed before the gap closes."""
    owned = queue(0, 1, 2, 5, following=9)
    settle(owned, 2, 5)
    assert owned.prefix() == 0
    settle(owned, 0)
    assert owned.prefix() == 1
    settle(owned, 1)
    assert owned.prefix() == 9


def test_an_offset_is_settled_once() -> None:
    """The second claim fails, before and after the first one is finished."""
    owned = queue(0, following=1)
    assert owned.claim(0)
    assert not owned.claim(0)
    owned.finish([0])
    assert not owned.claim(0)


def test_nothing_of_a_lost_queue_is_settled() -> None:
    """Someone else may have it: no offset moves any more."""
    owned = queue(0, 1, following=2)
    assert owned.claim(0)
    owned.lose()
    assert not owned.finish([0])
    assert owned.prefix() == 0


def test_what_was_settled_before_a_loss_does_not_come_again() -> None:
    """The same member goes on where it was, without what it has settled behind a gap."""
    owned = queue(0, 1, 2, following=3)
    settle(owned, 0, 2)
    progress = owned.progress()
    assert progress is not None
    again = ProcessQueue(owned.key, 2)
    again.begin(progress.prefix, progress.committed, progress.settled)
    fresh = again.advance(4, [message(offset) for offset in (1, 2, 3)])
    assert [stored.offset for stored in fresh] == [1, 3]
    settle(again, 1, 3)
    assert again.prefix() == 4


def test_only_what_stands_before_settled_messages_is_moved() -> None:
    """What is unsettled at the end stays where it is."""
    owned = queue(0, 1, 2, 3, following=4)
    settle(owned, 1, 2)
    assert [stored.offset for stored in owned.before_settled()] == [0]


def test_one_poll_at_a_time() -> None:
    """A second one is not asked for while the first is under way, nor when the queue goes to someone else."""
    owned = queue(following=0)
    assert owned.ask() == 0
    assert owned.ask() is None
    owned.advance(0, ())
    assert owned.ask() == 0
    owned.failed()
    owned.draining = True
    assert owned.ask() is None


def test_texts_hash_as_in_java() -> None:
    """Java's producers choose queues by String.hashCode."""
    assert [java_hash(text) for text in ("", "a", "Aa", "BB", "hello world", "🚕")] == [
        0, 97, 2112, 2112, 1794106052, 1773048,
    ]  # fmt: skip
