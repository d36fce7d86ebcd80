"""Anyone who settles: what the broker cannot do now does not undo what the ledger has done, nor the other way round."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed
from oncemq.engine.parking.settlement_router import SettlementRouter
from oncemq.errors import BrokerUnavailable
from oncemq.message.envelope import Delivery, Message


class Place:
    """Settles everything, or raises, and remembers what it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def settle(parts: Sequence[Any]) -> Sequence[SettleFailed]:
            self.told += parts
            if self.error is not None:
                raise self.error
            return ()

        return settle

    def count(self) -> int:
        """Return 0."""
        return 0


def delivery(*, parked: bool) -> Delivery:
    """Return one of the broker's, or of the ledger's."""
    return Delivery(Message("t", b""), None, source=Place() if parked else None)


def test_dead_letters_of_the_ledger_are_settled_while_the_broker_is_away() -> None:
    """Else they would be settled again, when they are no one's any more, and no one would be told of them."""
    error = BrokerUnavailable("away")
    broker, parked = Place(error), Place()
    dead = [DeadLetterRequest(delivery(parked=True), {}), DeadLetterRequest(delivery(parked=False), {})]
    failed = SettlementRouter(broker, parked, hold_key=False).dead_letter(dead)
    assert [(failure.delivery, failure.error) for failure in failed] == [(dead[1].delivery, error)]
    assert (parked.told, broker.told) == (dead[:1], dead[1:])


def test_a_message_is_held_although_its_broker_cannot_be_told_yet() -> None:
    """Only its acknowledgement is tried again: the place of its key is taken."""
    error = BrokerUnavailable("away")
    broker, parked = Place(error), Place()
    later = RetryRequest(delivery(parked=False), timedelta(0), {})
    failed = SettlementRouter(broker, parked, hold_key=True).retry([later])
    assert [(failure.delivery, failure.error) for failure in failed] == [(later.delivery, error)]
    assert parked.told == [later]
