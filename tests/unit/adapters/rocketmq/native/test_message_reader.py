"""Which stored message is the one that a callback of librocketmq waits with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import pytest

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.native import message_reader as module
from oncemq_adapters.rocketmq.native.message_reader import NotFound, WholeMessages
from oncemq_adapters.rocketmq.native.progress import Queue
from oncemq_adapters.rocketmq_client.properties import UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import StoredMessage


def _stored(unique_id: str, stored_at: int) -> StoredMessage:
    return StoredMessage("orders", b"{}", {UNIQUE_ID: unique_id}, 7, 1, stored_at, 0, 0)


def _unreadable() -> StoredMessage:
    return StoredMessage("orders", b"", {}, 7, 0, 0, 0, 0, "its layout cannot be read")


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sequence[StoredMessage] | None]:
    """What lies in the queue of each broker; None = it does not answer."""
    places: dict[str, Sequence[StoredMessage] | None] = {}

    def browse(broker: str, *_: object, **__: object) -> Iterator[StoredMessage]:
        found = places[broker]
        if found is None:
            raise BrokerUnavailable("away")
        yield from found

    monkeypatch.setattr(module, "browse", browse)
    return places


class Routes:
    """Knows some brokers, and hears of more when the name servers are asked.

    Attributes:
        known: brokers with a queue of the topic.
        fresh: those that the name servers tell.
    """

    def __init__(self, known: Iterable[str], fresh: Iterable[str] = ()) -> None:
        self.known = list(known)
        self.fresh = list(fresh) or self.known

    def find(self, _topic: str) -> SimpleNamespace:
        """Return what is known."""
        return SimpleNamespace(readable=[(name, 0) for name in self.known])

    def ask(self, topic: str) -> SimpleNamespace:
        """Learn."""
        self.known = self.fresh
        return self.find(topic)


def _found(
    lying: Mapping[str, object], unique_id: str, stored_at: int, routes: Routes | None = None
) -> list[str]:
    brokers = SimpleNamespace(get=lambda name: name)
    whole = WholeMessages(routes or Routes(lying), brokers)  # type: ignore[arg-type]
    found = whole.find(["orders"], 0, 7, unique_id, stored_at)
    assert all(stored.queue == Queue(stored.queue.broker, "orders", 0) for stored in found)
    return [stored.queue.broker for stored in found]


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Where the queue of each broker begins; 0 unless a test says otherwise."""
    offsets: dict[str, int] = {}
    monkeypatch.setattr(module, "first_offset", lambda broker, *_: offsets.get(broker, 0))
    return offsets


def test_message_in_a_queue_that_was_added_is_found(lying: dict[str, object]) -> None:
    """The name servers are asked again before a message counts as gone."""
    lying.update(a=[], b=[_stored("id", 6)])
    assert _found(lying, "id", 6, Routes("a", "ab")) == ["b"]


def test_message_that_is_nowhere_is_not_gone(lying: dict[str, object], begins: dict[str, int]) -> None:
    """While a queue that may hold it begins before it, nothing says that it was deleted."""
    lying.update(a=[], b=[])
    begins.update(a=8, b=7)
    with pytest.raises(NotFound):
        _found(lying, "id", 6)


def test_message_of_a_queue_that_is_nowhere_is_not_gone(lying: dict[str, object]) -> None:
    """No broker has a queue of its number: that is no proof of anything."""
    routes = Routes([])
    with pytest.raises(NotFound):
        _found(lying, "id", 6, routes)


def test_message_is_gone_when_all_queues_begin_behind_it(
    lying: dict[str, object], begins: dict[str, int]
) -> None:
    """Brokers delete the oldest messages."""
    lying.update(a=[], b=[_stored("other", 5)])
    begins.update(a=8, b=8)
    assert _found(lying, "id", 6) == []


def test_message_with_another_id_is_it_when_nothing_fits_better(lying: dict[str, object]) -> None:
    """Librocketmq may tell an id otherwise; place and time are those of one message."""
    lying.update(a=[_stored("other", 6)])
    assert _found(lying, "id", 6) == ["a"]


def test_message_that_fits_in_everything_is_the_only_one(lying: dict[str, object]) -> None:
    """Others with its id, or that cannot be read, are not it."""
    lying.update(a=[_stored("double", 5)], b=[_unreadable()], c=[_stored("double", 6)])
    assert _found(lying, "double", 6) == ["c"]


def test_messages_that_fit_in_part_may_all_be_it(lying: dict[str, object]) -> None:
    """One stored at another time, and one that cannot be read, but none with another id."""
    lying.update(a=[_stored("id", 5)], b=[_unreadable()], c=[_stored("other", 6)], d=[])
    assert _found(lying, "id", 6) == ["a", "b"]


def test_id_that_librocketmq_cuts_at_a_nul_is_known(lying: dict[str, object]) -> None:
    """Its texts are C's."""
    lying.update(a=[_stored("id\0more", 6)])
    assert _found(lying, "id", 6) == ["a"]


def test_nothing_is_taken_for_another_while_a_broker_is_away(lying: dict[str, object]) -> None:
    """The one that does not answer may have the message that fits."""
    lying.update(a=[_stored("id", 5)], b=None)
    with pytest.raises(BrokerUnavailable):
        _found(lying, "id", 6)
