"""What the library's process is told, and when: nothing that is not finished, and nothing of another broker's message."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Event
from typing import Any

import pytest

from oncemq.errors import DeliveryVoid
from oncemq.message.envelope import Delivery
from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.librocketmq.remembered import Remembered
from oncemq_adapters.rocketmq.names import retry_topic
from oncemq_adapters.rocketmq.native import session as module
from oncemq_adapters.rocketmq.native import settlement
from oncemq_adapters.rocketmq.native.inbox import Inbox
from oncemq_adapters.rocketmq.native.message_reader import Found, NotFound
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq.native.session import Session
from oncemq_adapters.rocketmq.properties import ORIGIN_TOPIC, UNIQUE_ID
from oncemq_adapters.rocketmq.remoting.protocol.message_codec import StoredMessage

RETRIES = retry_topic("group")


def _stored(
    offset: int,
    name: str = "",
    topic: str = "orders",
    stored_at: int = 5,
    *,
    marked: bool | None = None,
) -> StoredMessage:
    properties = {UNIQUE_ID: name or f"id-{offset}"}
    if marked or (marked is None and topic == RETRIES):
        properties[ORIGIN_TOPIC] = "orders"
    return StoredMessage(topic, b"{}", properties, offset, 1, stored_at, 0, 0)


def _asks(offset: int, name: str = "", topic: str = "orders", stored_at: int = 5) -> Identity:
    return topic, 0, offset, stored_at, name or f"id-{offset}"


class Process:
    """Notes what it is told."""

    def __init__(self, *_: object) -> None:
        self.words: list[list[Identity]] = []
        self.answers: list[Identity] = []

    @property
    def passed(self) -> list[Identity]:
        """All that is finished."""
        return [letter for word in self.words for letter in word]

    def finished(self, messages: Sequence[tuple[str, int, int, int, str, int]]) -> None:
        """Note them, without our number of their queue."""
        self.words.append([message[:5] for message in messages])

    def answer(self, message: Identity) -> None:
        """Note it."""
        self.answers.append(message)

    def kill(self) -> None:
        """Do nothing."""


class Whole:
    """Two brokers with a queue of the same number each."""

    def __init__(self, **queues: Sequence[StoredMessage]) -> None:
        self._queues = queues
        self.reads = 0
        self.asked: list[Callable[[], None]] = []

    def queues_of(self, topics: Iterable[str], number: int) -> Sequence[Queue]:
        """Return those of both."""
        return [Queue(broker, topic, number) for topic in topics for broker in self._queues]

    def find(
        self, topics: Sequence[str], number: int, offset: int, unique_id: str, stored_at: int
    ) -> Sequence[Found]:
        """Return the message, or those that may be it, each with the one behind it."""
        self.reads += 1
        alike = []
        for broker, messages in self._queues.items():
            found = [near for near in messages if 0 <= near.offset - offset <= 1 and near.topic in topics]
            first = found[0] if found else None
            if first is None or first.properties.get(UNIQUE_ID, unique_id) != unique_id:
                continue
            answer = Found(Queue(broker, first.topic, number), found)
            if first.stored == stored_at:
                return [answer]
            alike.append(answer)
        return alike

    def after(
        self,
        broker: str,
        _topic: str,
        _number: int,
        offset: int,
        done: Callable[[Sequence[StoredMessage]], None],
    ) -> None:
        """Have the two that follow told at the next `answer`."""
        self.reads += 1
        found = [message for message in self._queues[broker] if offset < message.offset <= offset + 2]
        self.asked.append(partial(done, found))

    def answer(self) -> None:
        """Answer all questions, also those that this brings."""
        while self.asked:
            self.asked.pop(0)()


class Sink:
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.heard = Event()

    def deliver(self, deliveries: Sequence[Delivery], _consumer: str) -> None:
        """Take some."""
        self.got += deliveries
        self.heard.set()

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Take no notice."""


class Bench:
    """A session with its surroundings."""

    def __init__(self, whole: Whole, progress: Progress | None = None, limit: int = 1000) -> None:
        self.whole = whole
        self.sink = Sink()
        self.progress = progress or Progress("group")
        inbox = Inbox("work", "orders", "group", limit, self.sink)
        self.session = Session(1, "group", {"orders": inbox}, whole, self.progress, {}, print)  # type: ignore[arg-type]
        self.process: Process = self.session._process  # type: ignore[assignment]

    def acknowledge(self, *deliveries: Delivery) -> list[Exception]:
        """Return what failed."""
        return [failure.error for failure in settlement.acknowledge(deliveries)]

    def ask(self, *messages: Identity) -> None:
        """Have callbacks wait for these."""
        for message in messages:
            self.session._on_message(message)
            self.whole.answer()

    def reach(self, *places: tuple[int, int]) -> None:
        """Have callbacks pass."""
        self.session._on_reached(places)
        self.whole.answer()


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LibraryProcess", Process)


def _offsets(deliveries: Iterable[Delivery]) -> list[int]:
    return [delivery.token.stored.offset for delivery in deliveries]


def test_nothing_passes_before_it_is_settled() -> None:
    """What is read ahead is delivered, and the library hears of it only when it is acknowledged."""
    bench = Bench(Whole(a=[_stored(0), _stored(1)]))
    bench.ask(_asks(0))
    assert _offsets(bench.sink.got) == [0, 1]
    assert bench.process.passed == []
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.passed == [_asks(1)]


def test_one_word_tells_all_of_an_acknowledgement() -> None:
    """Messages that are acknowledged at once pass by one frame."""
    bench = Bench(Whole(a=[_stored(0), _stored(1)]))
    bench.ask(_asks(0))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.words == [[_asks(0), _asks(1)]]


def test_void_message_never_passes() -> None:
    """When the process is gone its messages come again, and no later process hears that they are finished."""
    bench = Bench(Whole(a=[_stored(0)]))
    bench.ask(_asks(0))
    bench.session.end()
    (error,) = bench.acknowledge(*bench.sink.got)
    assert isinstance(error, DeliveryVoid)
    assert bench.process.passed == []
    assert not bench.progress.is_settled(Queue("a", "orders", 0), 0)


def test_process_that_ends_during_a_settlement_makes_it_void() -> None:
    """A delivery that was claimed while the process lived is not settled when it is gone."""
    bench = Bench(Whole(a=[_stored(0)]))
    bench.ask(_asks(0))
    assert settlement.claim(bench.sink.got[0]) is None
    bench.session.end()
    assert not bench.session.finish([bench.sink.got[0].token])
    assert not bench.progress.is_settled(Queue("a", "orders", 0), 0)


def test_message_of_another_broker_is_not_taken_for_a_finished_one() -> None:
    """Two brokers have a message at the same offset of a queue of the same number: each is handled."""
    bench = Bench(Whole(a=[_stored(0, "of-a")], b=[_stored(0, "of-b")]))
    bench.ask(_asks(0, "of-a"))
    bench.acknowledge(*bench.sink.got)
    bench.ask(_asks(0, "of-b"))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    assert bench.process.answers == []


def test_message_of_another_broker_with_the_same_id_is_told_apart_by_its_time() -> None:
    """Producers of librocketmq give some ids twice."""
    bench = Bench(Whole(a=[_stored(0, "double", stored_at=5)], b=[_stored(0, "double", stored_at=6)]))
    bench.ask(_asks(0, "double", stored_at=5), _asks(0, "double", stored_at=6))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.passed == [_asks(0, "double", stored_at=6)]


def test_callback_that_asks_while_its_pass_is_on_the_way_is_answered() -> None:
    """Neither is the message read again, nor does the callback wait for ever."""
    whole = Whole(a=[_stored(0), _stored(1)])
    bench = Bench(whole)
    bench.ask(_asks(0))
    bench.acknowledge(*bench.sink.got)
    reads = whole.reads
    bench.ask(_asks(1))
    assert bench.process.answers == [_asks(1)]
    assert (len(bench.sink.got), whole.reads) == (2, reads)


def test_what_is_read_twice_passes_once() -> None:
    """Reads overlap; a second pass would be kept for a callback that never comes."""
    bench = Bench(Whole(a=[_stored(offset) for offset in range(5)]))
    bench.ask(_asks(0))
    bench.acknowledge(*bench.sink.got)
    passed = list(bench.process.passed)
    assert _asks(1) in passed
    bench.session._take(Queue("a", "orders", 0), [_stored(1), _stored(9)])
    assert bench.process.passed == passed
    assert _offsets(bench.sink.got)[-1] == 9


def test_what_comes_back_passes_once_more() -> None:
    """A queue that went and came back before the broker knew how far it was: callbacks come a second time."""
    bench = Bench(Whole(a=[_stored(0), _stored(1), _stored(2)]))
    bench.ask(_asks(0))
    bench.acknowledge(*bench.sink.got)
    passed = list(bench.process.passed)
    bench.session._recent = Remembered(1)
    bench.ask(_asks(0))
    assert bench.process.passed == [*passed, _asks(0), _asks(1)]


def test_what_an_earlier_process_settled_passes_at_once() -> None:
    """It is not delivered again, and its callback need not ask."""
    progress = Progress("group")
    progress.settled([(Queue("a", "orders", 0), 1)])
    bench = Bench(Whole(a=[_stored(0), _stored(1)]), progress)
    bench.ask(_asks(0))
    assert _offsets(bench.sink.got) == [0]
    assert bench.process.passed == [_asks(1)]


def test_retry_passes_as_a_retry() -> None:
    """Retries are shown by librocketmq under their first topic, so the group's retries have a name of their own."""
    bench = Bench(Whole(a=[_stored(0, topic=RETRIES)]))
    bench.ask(_asks(0, topic=""))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [_asks(0, topic="")]


def test_a_message_marked_as_a_retry_is_found() -> None:
    """Copied properties make librocketmq take an ordinary message for a retry; it lies in its own topic all the same."""
    bench = Bench(Whole(a=[_stored(0, marked=True)]))
    bench.ask(_asks(0, topic=""))
    assert _offsets(bench.sink.got) == [0]
    assert bench.process.answers == []
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [_asks(0, topic="")]


def test_an_unmarked_retry_passes_by_its_topic() -> None:
    """What someone put among the group's retries is known to librocketmq under the topic in which it lies."""
    bench = Bench(Whole(a=[_stored(0, topic=RETRIES, marked=False)]))
    bench.ask(_asks(0, topic=RETRIES))
    bench.acknowledge(*bench.sink.got)
    assert bench.process.passed == [_asks(0, topic=RETRIES)]


def _unreadable(offset: int) -> StoredMessage:
    return StoredMessage("orders", b"\x00", {}, offset, 0, 0, 0, 0, "its layout cannot be read")


def test_message_that_librocketmq_knows_by_another_time_holds_up_no_other() -> None:
    """A pass by our view of it would fit no callback: the one that waits is answered, once it is finished."""
    bench = Bench(Whole(a=[_stored(0)]))
    bench.ask(_asks(0, stored_at=99))
    assert _offsets(bench.sink.got) == [0]
    assert bench.process.answers == []
    bench.acknowledge(*bench.sink.got)
    assert bench.process.answers == [_asks(0, stored_at=99)]
    assert not bench.session._unlike


def test_message_that_only_librocketmq_can_read_becomes_a_dead_letter() -> None:
    """It is delivered with its trouble, and its callback waits until it is settled, as any other does."""
    bench = Bench(Whole(a=[_unreadable(0)]))
    bench.ask(_asks(0))
    (delivery,) = bench.sink.got
    assert delivery.token.stored.trouble
    assert bench.process.answers == []
    bench.acknowledge(delivery)
    assert bench.process.answers == [_asks(0)]


def test_unlike_message_that_an_earlier_process_settled_passes_at_once() -> None:
    """Its callback is answered by the name that it has for the message."""
    progress = Progress("group")
    progress.settled([(Queue("a", "orders", 0), 0)])
    bench = Bench(Whole(a=[_stored(0)]), progress)
    bench.ask(_asks(0, stored_at=99))
    assert bench.sink.got == []
    assert bench.process.answers == [_asks(0, stored_at=99)]


def test_callback_that_may_mean_either_of_two_messages_waits_for_both() -> None:
    """Else the message of one broker would be taken for finished when the other's is."""
    bench = Bench(Whole(a=[_unreadable(0)], b=[_unreadable(0)]))
    bench.ask(_asks(0))
    assert [delivery.token.queue.broker for delivery in bench.sink.got] == ["a", "b"]
    bench.acknowledge(bench.sink.got[0])
    assert bench.process.answers == []
    bench.acknowledge(bench.sink.got[1])
    assert bench.process.answers == [_asks(0)]


def test_unlike_messages_that_ask_again_are_delivered_once() -> None:
    """A queue that went and came back has its callbacks ask once more; after the settlement they are answered at once."""
    bench = Bench(Whole(a=[_stored(0)]))
    bench.ask(_asks(0, stored_at=99), _asks(0, stored_at=99))
    assert _offsets(bench.sink.got) == [0]
    bench.acknowledge(*bench.sink.got)
    bench.ask(_asks(0, stored_at=99))
    assert len(bench.sink.got) == 1
    assert bench.process.answers == [_asks(0, stored_at=99)] * 2


def test_message_that_was_deleted_holds_up_no_other() -> None:
    """A callback whose message is on no broker any more is answered."""
    bench = Bench(Whole(a=[]))
    bench.ask(_asks(7))
    assert bench.process.answers == [_asks(7)]


def test_passing_callbacks_have_more_read() -> None:
    """What lies behind the callbacks that were let through is delivered before anybody asks for it."""
    bench = Bench(Whole(a=[_stored(offset) for offset in range(10)]))
    bench.ask(_asks(0))
    bench.acknowledge(*bench.sink.got)
    bench.reach((0, 1))
    assert _offsets(bench.sink.got) == list(range(10))


def test_what_came_while_the_end_was_read_is_read_too() -> None:
    """A callback says that more is there, while the answer is on its way that there is none: no one will say it again."""
    stored = [_stored(0), _stored(1)]
    bench = Bench(Whole(a=stored))
    bench.ask(_asks(0))
    bench.session._on_message(_asks(0))
    stored += [_stored(2), _stored(3)]
    bench.session._on_message(_asks(1))
    bench.whole.answer()
    assert _offsets(bench.sink.got) == [0, 1, 2, 3]


def test_what_is_read_by_two_threads_is_delivered_once() -> None:
    """A callback may ask for a message that the broker is being asked for."""
    whole = Whole(a=[_stored(offset) for offset in range(4)])
    bench = Bench(whole)
    bench.ask(_asks(0))
    bench.session._on_message(_asks(1))
    bench.session._on_message(_asks(2))
    whole.answer()
    assert _offsets(bench.sink.got) == [0, 1, 2, 3]


def test_answer_that_comes_too_late_is_dropped() -> None:
    """What is read when the process is gone is neither delivered nor remembered."""
    whole = Whole(a=[_stored(offset) for offset in range(4)])
    bench = Bench(whole)
    bench.session._on_message(_asks(0))
    bench.session._on_message(_asks(1))
    bench.session.end()
    whole.answer()
    assert _offsets(bench.sink.got) == [0, 1]
    assert not any(bench.progress._open.values())


def test_silent_queue_is_read_no_further() -> None:
    """Settling alone reads nothing: a queue in which no callback comes may be someone else's by now."""
    whole = Whole(a=[_stored(offset) for offset in range(10)])
    bench = Bench(whole)
    bench.ask(_asks(0))
    reads = whole.reads
    bench.acknowledge(*bench.sink.got)
    assert whole.reads == reads


def test_little_is_read_ahead_for_a_busy_consumer() -> None:
    """While a consumer has more than it takes at once, only that is read which may have been pulled together."""
    messages = [_stored(offset) for offset in range(200)]
    bench = Bench(Whole(a=messages), limit=1)
    bench.ask(_asks(0))
    for _ in range(100):
        bench.ask(_asks(0))
    last = bench.session._read_to[Queue("a", "orders", 0)]
    assert module.PULLED - 1 <= last < module.FAR


def test_finished_messages_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither callbacks that never come nor messages that were finished long ago are kept."""
    monkeypatch.setattr(module, "RECENT", 10)
    bench = Bench(Whole(a=[_stored(offset) for offset in range(200)]))
    bench.ask(*[_asks(offset) for offset in range(200)])
    bench.acknowledge(*bench.sink.got)
    assert len(bench.sink.got) == 200
    assert not bench.session._held
    assert len(bench.session._recent) <= 20


def test_message_that_cannot_be_found_is_never_finished_and_delays_no_other() -> None:
    """It is looked for until it is found; what comes behind it is delivered meanwhile."""
    found = Event()
    bench = Bench(Whole(a=[_stored(7), _stored(8)]))
    original = bench.whole.find

    def find(topics: Sequence[str], number: int, offset: int, *marks: Any) -> Sequence[Found]:
        if offset == 7 and not found.is_set():
            raise NotFound("nowhere")
        return original(topics, number, offset, *marks)

    bench.whole.find = find  # type: ignore[method-assign]
    bench.session._aside.start()
    bench.session._on_message(_asks(7))
    bench.session._on_message(_asks(8))
    assert _offsets(bench.sink.got) == [8]
    assert bench.process.answers == []
    bench.sink.heard.clear()
    found.set()
    assert bench.sink.heard.wait(10)
    bench.session.end()
    assert _offsets(bench.sink.got) == [8, 7]
