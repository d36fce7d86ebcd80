"""What failed is settled beside the worker: at once for the worker, completely before the end."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from threading import Event, Thread

import pytest

from oncemq.contracts.verdict import PROCEED, RETURNED, Verdict, defer, reject, retry
from oncemq.engine.settlement.background_settler import BackgroundSettler
from oncemq.message.envelope import Delivery, Message

SECONDS = 20


class Settler:
    """Writes down what it is given; failures wait until they may."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Delivery, Verdict]]] = []
        self.asked = Event()
        self.may = Event()

    def settle(self, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Take a call; one with failures takes until `may`."""
        if any(not verdict.acknowledged for _, verdict in verdicts):
            self.asked.set()
            assert self.may.wait(SECONDS)
        self.calls.append(list(verdicts))

    def held_too_long(self, delivery: Delivery) -> bool:
        """Never."""
        return False

    def put_off(self, deferred: Sequence[tuple[Delivery, timedelta]]) -> None:
        """Take a call."""


class Broken(Settler):
    """Has a bug."""

    def settle(self, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Fail where there is one that is called bad."""
        if any(verdict.reason == "bad" for _, verdict in verdicts):
            raise RuntimeError("bug")
        self.calls.append(list(verdicts))


class Holder:
    """Knows what is in hand."""

    def __init__(self) -> None:
        self.held: list[Delivery] = []

    def settling(self, deliveries: Sequence[Delivery]) -> None:
        """Note them."""
        self.held += deliveries

    def settled(self, deliveries: Sequence[Delivery]) -> None:
        """Forget them."""
        self.held = [delivery for delivery in self.held if delivery not in deliveries]


class Room:
    """An aftermath with everything around it; its thread runs from the beginning."""

    def __init__(self) -> None:
        self.settler, self.holder = Settler(), Holder()
        self.aftermath = BackgroundSettler(self.settler, self.holder, self._failed)
        self.thread = Thread(target=self.aftermath.loop, daemon=True)
        self.thread.start()

    def _failed(self, doing: str, error: BaseException) -> None:
        raise AssertionError(doing) from error

    def end(self) -> None:
        """Close and wait until all is settled."""
        self.settler.may.set()
        self.aftermath.close()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def room() -> Iterator[Room]:
    """Return what is under test."""
    made = Room()
    yield made
    made.end()


def delivery() -> Delivery:
    """Return any delivery."""
    return Delivery(Message("orders", b"{}"))


def test_a_failure_does_not_keep_the_worker_waiting(room: Room) -> None:
    """What is done is acknowledged while a dead letter still waits for its confirmation."""
    done, dead = (delivery(), PROCEED), (delivery(), reject("no such user"))
    room.aftermath.settle([done, dead])
    assert room.settler.calls == [[done]]


def test_failures_that_wait_are_settled_together(room: Room) -> None:
    """A flood of bad messages costs one confirmation after the other only as often as there is time for one."""
    first, *others = [(delivery(), reject("bad")) for _ in range(4)]
    room.aftermath.settle([first])
    assert room.settler.asked.wait(SECONDS)
    for pair in others:
        room.aftermath.settle([pair])
    room.end()
    assert [call for call in room.settler.calls if call] == [[first], others]


def test_all_failures_are_settled_before_the_end(room: Room) -> None:
    """Closing loses nothing: the process does not end in order before each is settled."""
    failed = (delivery(), retry("no answer"))
    room.aftermath.settle([failed])
    room.end()
    assert [failed] in room.settler.calls


def test_a_failure_is_in_hand_until_it_is_settled(room: Room) -> None:
    """An app with open failures is not idle, and their leases are extended."""
    dead = delivery()
    room.aftermath.settle([(dead, reject("bad"))])
    assert room.settler.asked.wait(SECONDS)
    assert room.holder.held == [dead]
    room.end()
    assert room.holder.held == []


def test_what_the_worker_keeps_is_its_own(room: Room) -> None:
    """Returned and deferred deliveries go back to their queues without the broker."""
    room.aftermath.settle([(delivery(), RETURNED), (delivery(), defer(timedelta(seconds=1), "held"))])
    room.end()
    assert [call for call in room.settler.calls if call] == []


def test_a_settlement_that_raises_is_that_messages_alone() -> None:
    """The thread lives, the neighbours are settled, and the error is told."""
    settler, holder, told = Broken(), Holder(), list[str]()
    aftermath = BackgroundSettler(settler, holder, lambda doing, error: told.append(f"{doing}: {error}"))
    bad, good = (delivery(), reject("bad")), (delivery(), reject("good"))
    aftermath.settle([bad, good])
    aftermath.close()
    aftermath.loop()
    assert settler.calls == [[], [good]]
    assert told == ["settling <Delivery orders key='' attempt=1>: bug"]
    assert holder.held == []
