"""Messages that librocketmq and the second reader know by different times, identities or contents."""

from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq_client.protocol import StoredMessage
from support.benches.native_session import Bench, Whole, asked, no_process, offsets_of, stored_message

__all__ = ["no_process"]


def _unreadable(offset: int) -> StoredMessage:
    return StoredMessage("orders", b"\x00", {}, offset, 0, 0, 0, 0, "its layout cannot be read")


def test_message_that_librocketmq_knows_by_another_time_holds_up_no_other() -> None:
    """A pass by our view of it would fit no callback: the one that waits is answered, once it is finished."""
    bench = Bench(Whole(a=[stored_message(0)]))
    bench.ask(asked(0, stored_at=99))
    assert offsets_of(bench.sink.got) == [0]
    assert bench.process.answers == []
    bench.acknowledge(*bench.sink.got)
    assert bench.process.answers == [asked(0, stored_at=99)]
    assert not bench.session._unlike


def test_message_that_only_librocketmq_can_read_becomes_a_dead_letter() -> None:
    """It is delivered with its trouble, and its callback waits until it is settled, as any other does."""
    bench = Bench(Whole(a=[_unreadable(0)]))
    bench.ask(asked(0))
    (delivery,) = bench.sink.got
    assert delivery.token.stored.trouble
    assert bench.process.answers == []
    bench.acknowledge(delivery)
    assert bench.process.answers == [asked(0)]


def test_unlike_message_that_an_earlier_process_settled_passes_at_once() -> None:
    """Its callback is answered by the name that it has for the message."""
    progress = Progress("group")
    progress.settled([(Queue("a", "orders", 0), 0)])
    bench = Bench(Whole(a=[stored_message(0)]), progress)
    bench.ask(asked(0, stored_at=99))
    assert bench.sink.got == []
    assert bench.process.answers == [asked(0, stored_at=99)]


def test_callback_that_may_mean_either_of_two_messages_waits_for_both() -> None:
    """Else the message of one broker would be taken for finished when the other's is."""
    bench = Bench(Whole(a=[_unreadable(0)], b=[_unreadable(0)]))
    bench.ask(asked(0))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    bench.acknowledge(bench.sink.got[0])
    assert bench.process.answers == []
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.answers == [asked(0)]


def test_unlike_messages_that_ask_again_are_delivered_once() -> None:
    """A queue that went and came back has its callbacks ask once more; after the settlement they are answered at once."""
    bench = Bench(Whole(a=[stored_message(0)]))
    bench.ask(asked(0, stored_at=99), asked(0, stored_at=99))
    assert offsets_of(bench.sink.got) == [0]
    bench.acknowledge(*bench.sink.got)
    bench.ask(asked(0, stored_at=99))
    assert len(bench.sink.got) == 1
    assert bench.process.answers == [asked(0, stored_at=99)] * 2
