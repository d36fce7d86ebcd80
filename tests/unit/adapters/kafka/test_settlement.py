"""What a settlement refuses before anything is sent."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from oncemq.contracts.adapter import RetryRequest
from oncemq.errors import BrokerError, BrokerRefused
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.kafka.records import Record
from oncemq_adapters.kafka.settlement import Settlement
from oncemq_adapters.kafka.tracker import PartitionTracker, State


class Raw:
    """A record with nothing but its offset."""

    def offset(self) -> int:
        """Return the first."""
        return 0


def send(records: Sequence[Record]) -> list[BrokerError | None]:
    """Fail: nothing may be sent."""
    raise AssertionError(records)


def test_a_retry_that_would_be_removed_before_it_is_due_is_refused() -> None:
    """The topic of the retries has a retention; the message stays ours, and its failure can be told."""
    raw: Any = Raw()
    tracker = PartitionTracker(None, "orders", 0, 1, 0)
    entry = tracker.add(raw)
    assert entry is not None
    assert tracker.deliver(entry)
    delivery = Delivery(Message("orders", b"{}", "orders-0-0"), entry, 1)
    settlement = Settlement(send, lambda: datetime.now(UTC), timedelta(days=30))
    (failed,) = settlement.retry([RetryRequest(delivery, timedelta(days=30), {})])
    assert isinstance(failed.error, BrokerRefused)
    assert "retry_retention" in str(failed.error)
    assert (entry.state, delivery.settled) == (State.DELIVERED, False)
