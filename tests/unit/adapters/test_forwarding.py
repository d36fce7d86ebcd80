"""The order in which a delivery is forwarded: claimed, copied, confirmed, and only then finished."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import AlreadySettled, BrokerError, BrokerRefused, BrokerUnavailable
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.forwarding import forward

REFUSED = BrokerRefused("too large")
AWAY = BrokerUnavailable("no answer")


class Broker:
    """Notes each step with the tokens it is about."""

    def __init__(self, *, away: Sequence[str] = ()) -> None:
        self.steps: list[str] = []
        self.claimed: set[int] = set()
        self._away = away

    def claim(self, delivery: Delivery) -> AlreadySettled | None:
        """Reserve it once."""
        if id(delivery) in self.claimed:
            return AlreadySettled("settled before")
        self.claimed.add(id(delivery))
        return None

    def unclaim(self, delivery: Delivery) -> None:
        """Give it free."""
        self.claimed.discard(id(delivery))

    def send(self, copies: Sequence[str]) -> list[BrokerError | None]:
        """Confirm what is not away."""
        self.steps.append(f"sent {' '.join(copies)}")
        return [AWAY if copy in self._away else None for copy in copies]

    def finish(self, deliveries: Sequence[Delivery]) -> list[SettleFailed]:
        """Let them go."""
        self.steps.append(f"finished {' '.join(delivery.token for delivery in deliveries)}".strip())
        return []

    def forward(self, *moves: tuple[Delivery, Callable[[Any], str | None]]) -> list[SettleFailed]:
        """Forward these."""
        return forward(moves, self.send, self.claim, self.unclaim, self.finish)


def delivery(token: str) -> Delivery:
    """Return a delivery with such a token."""
    return Delivery(Message("orders", b"x"), token, 1)


def refuse(_token: str) -> str:
    """Make no copy."""
    raise REFUSED


@pytest.fixture
def broker() -> Broker:
    """A broker that confirms everything."""
    return Broker()


def test_an_original_goes_after_its_copy_is_confirmed(broker: Broker) -> None:
    """All copies are sent together, then all originals are finished together."""
    assert broker.forward((delivery("a"), str.upper), (delivery("b"), str.upper)) == []
    assert broker.steps == ["sent A B", "finished a b"]


def test_an_original_without_a_confirmed_copy_can_be_settled_again() -> None:
    """It is not finished, its error is returned, and its neighbours go."""
    broker, lost = Broker(away=["A"]), delivery("a")
    assert broker.forward((lost, str.upper), (delivery("b"), str.upper)) == [SettleFailed(lost, AWAY)]
    assert broker.steps == ["sent A B", "finished b"]
    assert broker.claim(lost) is None


def test_an_original_of_which_no_copy_can_be_made_can_be_settled_again(broker: Broker) -> None:
    """Nothing is sent for it."""
    large = delivery("a")
    assert broker.forward((large, refuse), (delivery("b"), str.upper)) == [SettleFailed(large, REFUSED)]
    assert broker.steps == ["sent B", "finished b"]
    assert broker.claim(large) is None


def test_a_copy_that_was_confirmed_before_is_not_sent_again(broker: Broker) -> None:
    """The original is finished with the others."""
    assert broker.forward((delivery("a"), lambda _: None), (delivery("b"), str.upper)) == []
    assert broker.steps == ["sent B", "finished a b"]


def test_a_delivery_that_is_claimed_is_neither_copied_nor_freed(broker: Broker) -> None:
    """Another call is settling it."""
    busy = delivery("a")
    broker.claim(busy)
    (failed,) = broker.forward((busy, str.upper))
    assert isinstance(failed.error, AlreadySettled)
    assert broker.steps == ["finished"]
    assert broker.claim(busy) is not None
