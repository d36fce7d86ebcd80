"""Parks a consumer's messages on a sharded database: each on the shard of its key."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from oncemq.common.sharding import Layout
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed
from oncemq.engine.parking.parked_source import ParkedMessages
from oncemq.message.envelope import Delivery

Part = TypeVar("Part")


class ParkingPlace(Protocol):
    """Settles what is parked, and counts it."""

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Let these stay parked until their pause is over."""
        ...

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep messages of the broker's that failed."""
        ...

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove them."""
        ...

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove what is kept as a dead letter elsewhere."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Let others take at once what was never started."""
        ...

    def count(self) -> int:
        """Return how many messages wait."""
        ...


class ShardedParking:
    """Sends each message to the place on its key's shard.

    Args:
        places: one for each shard, in order.
        layout: which shard a key belongs to.
    """

    def __init__(self, places: Sequence[ParkedMessages], layout: Layout) -> None:
        self._places = places
        self._layout = layout

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Let these stay parked until their pause is over."""
        return self._each(later, _of_part, lambda place, mine: place.retry(mine))

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep messages of the broker's that failed."""
        return self._each(later, _of_part, lambda place, mine: place.hold(mine))

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove them."""
        return self._each(dead, _of_part, lambda place, mine: place.dead_letter(mine))

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove what is kept as a dead letter elsewhere."""
        return self._each(dead, _of_part, lambda place, mine: place.discard(mine))

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Let others take at once what was never started."""
        return self._each(deliveries, lambda one: one, lambda place, mine: place.give_back(mine))

    def count(self) -> int:
        """Return how many messages wait, on all shards."""
        return sum(place.count() for place in self._places)

    def _each(
        self,
        parts: Sequence[Part],
        delivery_of: Callable[[Part], Delivery],
        work: Callable[[ParkedMessages, list[Part]], Sequence[SettleFailed]],
    ) -> list[SettleFailed]:
        shards: dict[int, list[Part]] = {}
        for part in parts:
            shards.setdefault(self._layout.shard_of(delivery_of(part).key), []).append(part)
        return [failed for shard, mine in shards.items() for failed in work(self._places[shard], mine)]


def _of_part(part: RetryRequest | DeadLetterRequest) -> Delivery:
    return part.delivery


def whole(places: Sequence[ParkedMessages], layout: Layout | None) -> ParkingPlace | None:
    """Return all places as one; None where nothing can be parked."""
    if not places:
        return None
    return places[0] if layout is None else ShardedParking(places, layout)
