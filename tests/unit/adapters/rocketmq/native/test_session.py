"""What the library's process is told, and when: nothing that is not finished, and nothing of another broker's message."""

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from oncemq.errors import DeliveryVoid
from oncemq_adapters.librocketmq.remembered import Remembered
from oncemq_adapters.rocketmq.native import session as module
from oncemq_adapters.rocketmq.native import settlement
from oncemq_adapters.rocketmq.native.message_reader import Found, NotFound
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from support.benches.native_session import (
    RETRIES,
    Bench,
    Whole,
    asked,
    no_process,
    offsets_of,
    stored_message,
)

__all__ = ["no_process"]


def test_nothing_passes_before_it_is_settled() -> None:
    """What is read ahead is delivered, and the library hears of it only when it is acknowledged."""
    bench = Bench(Whole(a=[stored_message(0), stored_message(1)]))
    bench.ask(asked(0))
    assert offsets_of(bench.sink.got) == [0, 1]
    assert bench.process.passed == []
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.passed == [asked(1)]


def test_one_word_tells_all_of_an_acknowledgement() -> None:
    """Messages that are acknowledged at once pass by one frame."""
    bench = Bench(Whole(a=[stored_message(0), stored_message(1)]))
    bench.ask(asked(0))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.words == [[asked(0), asked(1)]]


def test_void_message_never_passes() -> None:
    """When the process is gone its messages come again, and no later process hears that they are finished."""
    bench = Bench(Whole(a=[stored_message(0)]))
    bench.ask(asked(0))
    bench.session.end()
    (error,) = bench.acknowledge(*bench.sink.got)
    assert isinstance(error, DeliveryVoid)
    assert bench.process.passed == []
    assert not bench.progress.is_settled(Queue("a", "orders", 0), 0)


def test_process_that_ends_during_a_settlement_makes_it_void() -> None:
    """A delivery that was claimed while the process lived is not settled when it is gone."""
    bench = Bench(Whole(a=[stored_message(0)]))
    bench.ask(asked(0))
    assert settlement.claim(bench.sink.got[0]) is None
    bench.session.end()
    assert not bench.session.finish([bench.sink.got[0].token])
    assert not bench.progress.is_settled(Queue("a", "orders", 0), 0)


def test_message_of_another_broker_is_not_taken_for_a_finished_one() -> None:
    """Two brokers have a message at the same offset of a queue of the same number: each is handled."""
    bench = Bench(Whole(a=[stored_message(0, "of-a")], b=[stored_message(0, "of-b")]))
    bench.ask(asked(0, "of-a"))
    bench.acknowledge(*bench.sink.got)
    bench.ask(asked(0, "of-b"))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    assert bench.process.answers == []


def test_message_of_another_broker_with_the_same_id_is_told_apart_by_its_time() -> None:
    """Producers of librocketmq give some ids twice."""
    bench = Bench(
        Whole(a=[stored_message(0, "double", stored_at=5)], b=[stored_message(0, "double", stored_at=6)])
    )
    bench.ask(asked(0, "double", stored_at=5), asked(0, "double", stored_at=6))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.passed == [asked(0, "double", stored_at=6)]


def test_callback_that_asks_while_its_pass_is_on_the_way_is_answered() -> None:
    """Neither is the message read again, nor does the callback wait for ever."""
    whole = Whole(a=[stored_message(0), stored_message(1)])
    bench = Bench(whole)
    bench.ask(asked(0))
    bench.acknowledge(*bench.sink.got)
    reads = whole.reads
    bench.ask(asked(1))
    assert bench.process.answers == [asked(1)]
    assert (len(bench.sink.got), whole.reads) == (2, reads)


def test_what_is_read_twice_passes_once() -> None:
    """Reads overlap; a second pass would be kept for a callback that never comes."""
    bench = Bench(Whole(a=[stored_message(offset) for offset in range(5)]))
    bench.ask(asked(0))
    bench.acknowledge(*bench.sink.got)
    passed = list(bench.process.passed)
    assert asked(1) in passed
    bench.session._take(Queue("a", "orders", 0), [stored_message(1), stored_message(9)])
    assert bench.process.passed == passed
    assert offsets_of(bench.sink.got)[-1] == 9


def test_what_comes_back_passes_once_more() -> None:
    """A queue that went and came back before the broker knew how far it was: callbacks come a second time."""
    bench = Bench(Whole(a=[stored_message(0), stored_message(1), stored_message(2)]))
    bench.ask(asked(0))
    bench.acknowledge(*bench.sink.got)
    passed = list(bench.process.passed)
    bench.session._recent = Remembered(1)
    bench.ask(asked(0))
    assert bench.process.passed == [*passed, asked(0), asked(1)]


def test_what_an_earlier_process_settled_passes_at_once() -> None:
    """It is not delivered again, and its callback need not ask."""
    progress = Progress("group")
    progress.settled([(Queue("a", "orders", 0), 1)])
    bench = Bench(Whole(a=[stored_message(0), stored_message(1)]), progress)
    bench.ask(asked(0))
    assert offsets_of(bench.sink.got) == [0]
    assert bench.process.passed == [asked(1)]


def test_retry_passes_as_a_retry() -> None:
    """Retries are shown by librocketmq under their first topic, so the group's retries have a name of their own."""
    bench = Bench(Whole(a=[stored_message(0, topic=RETRIES)]))
    bench.ask(asked(0, topic=""))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [asked(0, topic="")]


def test_a_message_marked_as_a_retry_is_found() -> None:
    """Copied properties make librocketmq take an ordinary message for a retry; it lies in its own topic all the same."""
    bench = Bench(Whole(a=[stored_message(0, marked=True)]))
    bench.ask(asked(0, topic=""))
    assert offsets_of(bench.sink.got) == [0]
    assert bench.process.answers == []
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [asked(0, topic="")]


def test_an_unmarked_retry_passes_by_its_topic() -> None:
    """What someone put among the group's retries is known to librocketmq under the topic in which it lies."""
    bench = Bench(Whole(a=[stored_message(0, topic=RETRIES, marked=False)]))
    bench.ask(asked(0, topic=RETRIES))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [asked(0, topic=RETRIES)]


def test_message_that_was_deleted_holds_up_no_other() -> None:
    """A callback whose message is on no broker any more is answered."""
    bench = Bench(Whole(a=[]))
    bench.ask(asked(7))
    assert bench.process.answers == [asked(7)]


def test_passing_callbacks_have_more_read() -> None:
    """What lies behind the callbacks that were let through is delivered before anybody asks for it."""
    bench = Bench(Whole(a=[stored_message(offset) for offset in range(10)]))
    bench.ask(asked(0))
    bench.acknowledge(*bench.sink.got)
    bench.reach((0, 1))
    assert offsets_of(bench.sink.got) == list(range(10))


def test_what_came_while_the_end_was_read_is_read_too() -> None:
    """A callback says that more is there, while the answer is on its way that there is none: no one will say it again."""
    stored = [stored_message(0), stored_message(1)]
    bench = Bench(Whole(a=stored))
    bench.ask(asked(0))
    bench.session._on_message(asked(0))
    stored += [stored_message(2), stored_message(3)]
    bench.session._on_message(asked(1))
    bench.whole.answer()
    assert offsets_of(bench.sink.got) == [0, 1, 2, 3]


def test_what_is_read_by_two_threads_is_delivered_once() -> None:
    """A callback may ask for a message that the broker is being asked for."""
    whole = Whole(a=[stored_message(offset) for offset in range(4)])
    bench = Bench(whole)
    bench.ask(asked(0))
    bench.session._on_message(asked(1))
    bench.session._on_message(asked(2))
    whole.answer()
    assert offsets_of(bench.sink.got) == [0, 1, 2, 3]


def test_answer_that_comes_too_late_is_dropped() -> None:
    """What is read when the process is gone is neither delivered nor remembered."""
    whole = Whole(a=[stored_message(offset) for offset in range(4)])
    bench = Bench(whole)
    bench.session._on_message(asked(0))
    bench.session._on_message(asked(1))
    bench.session.end()
    whole.answer()
    assert offsets_of(bench.sink.got) == [0, 1]
    assert not any(bench.progress._open.values())


def test_silent_queue_is_read_no_further() -> None:
    """Settling alone reads nothing: a queue in which no callback comes may be someone else's by now."""
    whole = Whole(a=[stored_message(offset) for offset in range(10)])
    bench = Bench(whole)
    bench.ask(asked(0))
    reads = whole.reads
    bench.acknowledge(*bench.sink.got)
    assert whole.reads == reads


def test_little_is_read_ahead_for_a_busy_consumer() -> None:
    """While a consumer has more than it takes at once, only that is read which may have been pulled together."""
    messages = [stored_message(offset) for offset in range(200)]
    bench = Bench(Whole(a=messages), limit=1)
    bench.ask(asked(0))
    for _ in range(100):
        bench.ask(asked(0))
    last = bench.session._read_to[Queue("a", "orders", 0)]
    assert module.PULLED - 1 <= last < module.FAR


def test_finished_messages_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither callbacks that never come nor messages that were finished long ago are kept."""
    monkeypatch.setattr(module, "RECENT", 10)
    bench = Bench(Whole(a=[stored_message(offset) for offset in range(200)]))
    bench.ask(*[asked(offset) for offset in range(200)])
    bench.acknowledge(*bench.sink.got)
    assert len(bench.sink.got) == 200
    assert not bench.session._held
    assert len(bench.session._recent) <= 20


def test_message_that_cannot_be_found_is_never_finished_and_delays_no_other() -> None:
    """It is looked for until it is found; what comes behind it is delivered meanwhile."""
    found = Event()
    bench = Bench(Whole(a=[stored_message(7), stored_message(8)]))
    original = bench.whole.find

    def find(topics: Sequence[str], number: int, offset: int, *marks: Any) -> Sequence[Found]:
        if offset == 7 and not found.is_set():
            raise NotFound("nowhere")
        return original(topics, number, offset, *marks)

    bench.whole.find = find  # type: ignore[method-assign]
    bench.session._aside.start()
    bench.session._on_message(asked(7))
    bench.session._on_message(asked(8))
    assert offsets_of(bench.sink.got) == [8]
    assert bench.process.answers == []
    bench.sink.heard.clear()
    found.set()
    assert bench.sink.heard.wait(10)
    bench.session.end()
    assert offsets_of(bench.sink.got) == [8, 7]
