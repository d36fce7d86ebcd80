"""Which stored message is the one that a callback of librocketmq waits with."""

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import pytest

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.native import whole as module
from oncemq_adapters.rocketmq.native.progress import Queue
from oncemq_adapters.rocketmq.native.whole import WholeMessages
from oncemq_adapters.rocketmq.properties import UNIQUE_ID
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage


def _stored(unique_id: str, stored_at: int) -> StoredMessage:
    return StoredMessage("orders", b"{}", {UNIQUE_ID: unique_id}, 7, 1, stored_at, 0, 0)


def _unreadable() -> StoredMessage:
    return StoredMessage("orders", b"", {}, 7, 0, 0, 0, 0, "its layout cannot be read")


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sequence[StoredMessage] | None]:
    """What lies in the queue of each broker; None = it does not answer."""
    places: dict[str, Sequence[StoredMessage] | None] = {}

    def browse(broker: str, *_: object) -> Iterator[StoredMessage]:
        found = places[broker]
        if found is None:
            raise BrokerUnavailable("away")
        yield from found

    monkeypatch.setattr(module, "browse", browse)
    return places


def _found(lying: Mapping[str, object], unique_id: str, stored_at: int) -> list[str]:
    routes = SimpleNamespace(find=lambda _topic: SimpleNamespace(readable=[(name, 0) for name in lying]))
    brokers = SimpleNamespace(get=lambda name: name)
    whole = WholeMessages(routes, brokers)  # type: ignore[arg-type]
    found = whole.find(["orders"], 0, 7, unique_id, stored_at)
    assert all(one.queue == Queue(one.queue.broker, "orders", 0) for one in found)
    return [one.queue.broker for one in found]


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
