"""The order of tries that the comparison of programs goes by."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from alone.order import TryOrder
from oncemq.contracts.unit import Unit
from oncemq.engine.transaction.savepoint_batches import TransactionResult
from oncemq.engine.transaction.unit_transaction import RunMode
from oncemq.message.envelope import Delivery, Message


def test_several_that_failed_after_the_same_one_stay_in_their_order() -> None:
    """None of them was committed, so only their arrival tells which came first."""
    good, first, second = (Delivery(Message("orders", name)) for name in (b"good", b"first", b"second"))

    def run(_unit: Unit, deliveries: Sequence[Delivery], _mode: RunMode, **_how: Any) -> TransactionResult:
        if good not in deliveries:
            raise ValueError("it fails")
        items = [SimpleNamespace(delivery=delivery) for delivery in deliveries]
        return TransactionResult([SimpleNamespace(items=items)])  # type: ignore[list-item]

    attempt: Any = SimpleNamespace(run=run)
    order = TryOrder(attempt)
    unit = Unit("shop.points", [good, first, second], 60.0)
    for delivery in (good, first, second):
        try:
            attempt.run(unit, [delivery], RunMode(), exclusive=False)
        except ValueError:
            continue
    assert order.of([good, first, second]) == [good, first, second]
