"""Makes the items of a run from its deliveries."""

from collections.abc import Sequence

from oncemq.errors import StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.unit import Item


def make_items(deliveries: Sequence[Delivery], reader: Reader) -> list[Item]:
    """Return fresh items; the payload decoded at intake serves the first run, later ones decode anew."""
    items = []
    for delivery in deliveries:
        envelope, payload = delivery.envelope, delivery.payload
        if envelope is None:
            raise StrategyBug(f"{delivery!r} was never understood")
        if payload is None:
            payload = reader.decode(delivery.message)
        delivery.payload = None
        items.append(Item(delivery, envelope, payload))
    return items
