"""Every consumer of a process, as the adapters see them."""

from collections.abc import Mapping, Sequence

from oncemq.engine.consumer_runtime import Crew
from oncemq.message.envelope import Delivery


class Crews:
    """Every consumer of a process; the sink of all adapters."""

    def __init__(self, crews: Mapping[str, Crew]) -> None:
        self._crews = crews

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Hand deliveries to their consumer."""
        self._crews[consumer].consumer.receive(deliveries)

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Tell a consumer that what it has of this generation is void."""
        self._crews[consumer].consumer.lost(generation, alone=alone)
