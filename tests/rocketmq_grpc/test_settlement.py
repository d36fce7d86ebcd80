"""Settling by a proxy whose answers come when the test says so: what is slow holds up nothing but itself."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.common.clock import SystemClock
from oncemq.errors import AlreadySettled, BrokerUnavailable
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.grpc.held_leases import Lease, Shelf
from oncemq_adapters.rocketmq.grpc.settlement import Settler

FINE = SimpleNamespace(code=20000, message="")
SOON, LEASE = 5.0, timedelta(seconds=60)


class Proxy:
    """Keeps each question with the future that is its answer.

    Attributes:
        finishing: questions to finish deliveries.
        extending: questions to extend one.
    """

    def __init__(self) -> None:
        self.rpc_client = self
        self.finishing: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()
        self.extending: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()

    def sign(self) -> tuple[()]:
        """Return no signature."""
        return ()

    def ack_message_async(self, _endpoints: Any, request: Any, **_: Any) -> Future[Any]:
        """Keep a question."""
        return self._keep(self.finishing, request)

    def change_invisible_duration_async(self, _endpoints: Any, request: Any, **_: Any) -> Future[Any]:
        """Keep a question."""
        return self._keep(self.extending, request)

    @staticmethod
    def _keep(questions: SimpleQueue[tuple[Any, Future[Any]]], request: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        questions.put((request, answer))
        return answer

    def asked_to_finish(self) -> tuple[list[str], Future[Any]]:
        """Return the handles of the next question, and its answer."""
        request, answer = self.finishing.get(timeout=SOON)
        return [entry.receipt_handle for entry in request.entries], answer


def finished(handles: list[str], answer: Future[Any]) -> None:
    """Answer that these are finished."""
    entries = [SimpleNamespace(receipt_handle=handle, status=FINE) for handle in handles]
    answer.set_result(SimpleNamespace(status=FINE, entries=entries))


def extended(question: tuple[Any, Future[Any]]) -> str:
    """Answer that a lease is longer; returns the handle that it has from now on."""
    request, answer = question
    handle = f"{request.receipt_handle} again"
    answer.set_result(SimpleNamespace(status=FINE, receipt_handle=handle))
    return handle


def begun(do: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Do it on a thread that no one waits for: anyone who is held up for ever must not hold up the tests."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(do(*arguments))
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done


class Stage:
    """Two topics, and anyone who settles what came from them."""

    def __init__(self) -> None:
        self.proxy = Proxy()
        self.settler = Settler(lambda _shelf: self.proxy, self._send, "proxy:8081", SOON)
        self.sent: list[tuple[int, int]] = []
        self.sink = RecordingSink()
        self.shelves = [Shelf(name, "g", name, 10, self.sink, SystemClock()) for name in ("one", "two")]

    def deliver(self, shelf: int, *names: str, lease: timedelta = LEASE) -> list[Delivery]:
        """Return deliveries of a topic, whose handles are their names."""
        ours = self.shelves[shelf]
        before = len(self.sink.deliveries())
        leases = [(Message("t", b"x"), Lease(ours, name, name, "proxy", name)) for name in names]
        assert not ours.offer(leases, lease)
        return self.sink.deliveries()[before:]

    def _send(self, copies: Sequence[Any]) -> list[None]:
        """Confirm, and note how many these were, and how often the proxy had been asked to finish deliveries."""
        self.sent.append((len(copies), self.proxy.finishing.qsize()))
        return [None] * len(copies)

    def let_go(self, deliveries: Sequence[Delivery]) -> Future[Any]:
        """Begin to give back what the first topic's shelf held."""
        return begun(self.settler.let_go, self.shelves[0], deliveries, lambda _shelf, raw: raw)

    def acknowledge(self, *deliveries: Delivery) -> Future[Any]:
        """Begin to settle."""
        return begun(self.settler.acknowledge, deliveries)

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what no one signals."""
        deadline, pause = monotonic() + SOON, Event()
        while not reached():
            assert monotonic() < deadline
            pause.wait(0.005)

    def extend(self, *deliveries: Delivery) -> Future[Any]:
        """Begin to extend."""
        now = SystemClock().monotonic()
        return begun(self.settler.extend, deliveries, 2 * LEASE, now)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A stage; questions that no one answered end with the test."""
    stage = Stage()
    yield stage
    for questions in (stage.proxy.finishing, stage.proxy.extending):
        try:
            while True:
                questions.get_nowait()[1].cancel()
        except Empty:
            pass


def test_a_slow_extension_holds_up_its_own_delivery_alone(stage: Stage) -> None:
    """Its neighbours are settled at once, with the handles that their own extensions brought."""
    slow, quick = stage.deliver(0, "slow", "quick")
    extending = stage.extend(slow, quick)
    waits = stage.proxy.extending.get(timeout=SOON)
    assert extended(stage.proxy.extending.get(timeout=SOON)) == "quick again"
    settling = stage.acknowledge(slow, quick)
    handles, answer = stage.proxy.asked_to_finish()
    assert handles == ["quick again"]
    finished(handles, answer)
    (other,) = stage.deliver(0, "other")
    unconcerned = stage.acknowledge(other)
    finished(*stage.proxy.asked_to_finish())
    assert unconcerned.result(SOON) == []
    stage.until(lambda: quick.settled)
    assert not slow.settled
    extended(waits)
    handles, answer = stage.proxy.asked_to_finish()
    assert handles == ["slow again"]
    finished(handles, answer)
    assert settling.result(SOON) == []
    assert extending.result(SOON) == []


def test_who_settles_what_another_settles_is_told_so_at_once(stage: Stage) -> None:
    """Also when two name the same deliveries the other way round: no one waits for anybody."""
    ahead, behind = stage.deliver(0, "one", "two")
    first = stage.acknowledge(ahead, behind)
    question = stage.proxy.asked_to_finish()
    failed = stage.acknowledge(behind, ahead).result(SOON)
    assert [type(failure.error) for failure in failed] == [AlreadySettled] * 2
    finished(*question)
    assert first.result(SOON) == []


def test_a_topic_does_not_wait_for_the_answer_about_another(stage: Stage) -> None:
    """One call may settle deliveries of several topics: each is done with when its own answer has come."""
    (first,), (second,) = stage.deliver(0, "one"), stage.deliver(1, "two")
    settling = stage.acknowledge(first, second)
    late = stage.proxy.asked_to_finish()
    finished(*stage.proxy.asked_to_finish())
    stage.until(lambda: second.settled)
    assert not first.settled
    finished(*late)
    assert settling.result(SOON) == []


def test_a_failed_settlement_can_be_tried_again(stage: Stage) -> None:
    """The claim ends with it, and so does an extension that brought nothing."""
    (delivery,) = stage.deliver(0, "one")
    extending = stage.extend(delivery)
    stage.proxy.extending.get(timeout=SOON)[1].set_exception(ConnectionError("away"))
    assert len(extending.result(SOON)) == 1
    first = stage.acknowledge(delivery)
    stage.proxy.asked_to_finish()[1].set_exception(ConnectionError("away"))
    assert len(first.result(SOON)) == 1
    second = stage.acknowledge(delivery)
    finished(*stage.proxy.asked_to_finish())
    assert second.result(SOON) == []


def test_what_comes_again_by_itself_is_not_copied(stage: Stage) -> None:
    """While the proxy was away the lease has ended: with a copy there would be two of the message."""
    (soon,) = stage.deliver(0, "soon", lease=timedelta(seconds=1))
    (late,) = stage.deliver(0, "late")
    done = stage.let_go([soon, late])
    handles, answer = stage.proxy.asked_to_finish()
    finished(handles, answer)
    done.result(SOON)
    assert (handles, stage.sent) == (["late"], [(1, 0)])


def test_what_is_given_back_is_finished_before_more_is_copied(stage: Stage) -> None:
    """Anyone who dies while a thousand are given back has left few copies beside their originals."""
    done = stage.let_go(stage.deliver(0, *map(str, range(100))))
    for _ in range(2):
        finished(*stage.proxy.asked_to_finish())
    done.result(SOON)
    assert stage.sent == [(64, 0), (36, 1)]


def test_what_is_moved_is_finished_before_more_is_copied(stage: Stage) -> None:
    """So are retries."""
    deliveries = stage.deliver(0, *map(str, range(100)))
    done = begun(stage.settler.move, [(delivery, lambda lease: lease.raw) for delivery in deliveries])
    first = stage.proxy.asked_to_finish()
    assert stage.sent == [(64, 0)]
    finished(*first)
    finished(*stage.proxy.asked_to_finish())
    assert done.result(SOON) == []
    assert all(delivery.settled for delivery in deliveries)


def test_what_could_not_be_finished_is_not_copied_again(stage: Stage) -> None:
    """The copy was confirmed, then the proxy went away: anyone who tries again has only the original to finish."""
    (delivery,) = stage.deliver(0, "one")
    moves = [(delivery, lambda lease: lease.raw)]
    first = begun(stage.settler.move, moves)
    stage.proxy.asked_to_finish()[1].set_exception(ConnectionError("away"))
    assert [type(failure.error) for failure in first.result(SOON)] == [BrokerUnavailable]
    second = begun(stage.settler.move, moves)
    finished(*stage.proxy.asked_to_finish())
    assert second.result(SOON) == []
    assert stage.sent == [(1, 0)]


def test_what_is_given_back_at_the_end_is_not_copied_again(stage: Stage) -> None:
    """Neither does the close copy what was copied and could not be finished."""
    (delivery,) = stage.deliver(0, "one")
    first = begun(stage.settler.move, [(delivery, lambda lease: lease.raw)])
    stage.proxy.asked_to_finish()[1].set_exception(ConnectionError("away"))
    first.result(SOON)
    done = stage.let_go([delivery])
    finished(*stage.proxy.asked_to_finish())
    done.result(SOON)
    assert stage.sent == [(1, 0)]
