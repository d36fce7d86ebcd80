"""Records in which order the tries of a unit's messages ended, which its transactions may change across keys."""

from collections.abc import Iterable, Sequence

from oncemq.contracts.unit import Unit
from oncemq.engine.transaction.savepoint_batches import TransactionResult
from oncemq.engine.transaction.unit_transaction import RunMode, UnitTransaction
from oncemq.message.envelope import Delivery


class TryOrder:
    """Watches what a worker's transactions commit.

    Args:
        attempt: runs deliveries in one transaction.
    """

    def __init__(self, attempt: UnitTransaction) -> None:
        self._run = attempt.run
        self._committed: list[Delivery] = []
        self._before: dict[Delivery, list[Delivery]] = {}
        attempt.run = self.run  # type: ignore[method-assign]

    def run(
        self,
        unit: Unit,
        deliveries: Sequence[Delivery],
        mode: RunMode,
        *,
        exclusive: bool,
        look: bool = False,
    ) -> TransactionResult:
        """Run deliveries, and note what was committed, in order."""
        for place, delivery in enumerate(deliveries):
            self._before[delivery] = [*self._committed, *deliveries[:place]]
        done = self._run(unit, deliveries, mode, exclusive=exclusive, look=look)
        self._committed += [item.delivery for run in done.runs for item in run.items]
        return done

    def of(self, ended: Iterable[Delivery]) -> list[Delivery]:
        """Return deliveries in the order in which their tries ended; what failed saw what came before it in its last run."""
        left = list(ended)
        order = [delivery for delivery in self._committed if delivery in left]
        failed = [delivery for delivery in left if delivery not in order]
        for delivery in failed:
            before = self._before.get(delivery, [])
            place = max((order.index(seen) + 1 for seen in before if seen in order), default=0)
            # Several that saw the same came in the order of their arrival.
            while place < len(order) and order[place] in failed:
                place += 1
            order.insert(place, delivery)
        self._committed.clear()
        self._before.clear()
        return order
