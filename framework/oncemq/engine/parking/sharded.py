"""Parks a consumer's messages on a sharded database: each on the shard of its key."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from oncemq.common.sharding import Layout
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed
from oncemq.engine.parking.parked_source import ParkedMessages
from oncemq.message.envelope import Delivery

Part = TypeVar("Part")


class ParkingPlace(Protocol):
    """Settles and counts parked messages."""

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep these parked until their pause is over."""
        ...

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Park failed messages of the broker."""
        ...

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove them."""
        ...

    def hold_dead(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Keep these as dead letters that hold their keys."""
        ...

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove rows whose dead letter is kept elsewhere."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Release deliveries that were never started, available to others at once."""
        ...

    def count(self) -> int:
        """Return the number of waiting messages."""
        ...


class ShardedParking:
    """Routes each message to the store on its key's shard.

    Args:
        places: one per shard, in order.
        layout: which shard a key belongs to.
    """

    def __init__(self, places: Sequence[ParkedMessages], layout: Layout) -> None:
        self._places = places
        self._layout = layout

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep these parked until their pause is over."""
        return self._each(later, _of_part, lambda place, mine: place.retry(mine))

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Park failed messages of the broker."""
        return self._each(later, _of_part, lambda place, mine: place.hold(mine))

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove them."""
        return self._each(dead, _of_part, lambda place, mine: place.dead_letter(mine))

    def hold_dead(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Keep these as dead letters that hold their keys."""
        return self._each(dead, _of_part, lambda place, mine: place.hold_dead(mine))

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove rows whose dead letter is kept elsewhere."""
        return self._each(dead, _of_part, lambda place, mine: place.discard(mine))

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Release deliveries that were never started, available to others at once."""
        return self._each(deliveries, lambda delivery: delivery, lambda place, mine: place.give_back(mine))

    def count(self) -> int:
        """Return the number of waiting messages, on all shards."""
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
    """Return all stores as one; None where nothing can be parked."""
    if not places:
        return None
    return places[0] if layout is None else ShardedParking(places, layout)
