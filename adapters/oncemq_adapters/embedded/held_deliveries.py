"""Deliveries that each consumer holds, how many more it may have, and that each is settled once."""

from collections.abc import Collection, Mapping, Sequence
from threading import Lock

from oncemq.contracts.adapter import SettleFailed, Subscription
from oncemq.errors import AlreadySettled, DeliveryVoid
from oncemq.message.envelope import Delivery
from oncemq_adapters.embedded.settlement import Hold


class Token:
    """The private side of a delivery: what it holds, and whether it is being settled."""

    __slots__ = ("claimed", "consumer", "expires_at", "hold")

    def __init__(self, hold: Hold, consumer: str, expires_at: float) -> None:
        self.hold = hold
        self.consumer = consumer
        self.expires_at = expires_at
        self.claimed = False


class Custody:
    """Counts unsettled deliveries; thread-safe."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._lock = Lock()
        self._limits = {subscription.consumer: subscription.in_flight for subscription in subscriptions}
        self._held: dict[str, dict[int, Token]] = {
            subscription.consumer: {} for subscription in subscriptions
        }
        self._paused: set[str] = set()
        self._full: set[str] = set()

    def room(self, consumer: str) -> int:
        """Return how many deliveries the consumer may have now; remembers consumers that got 'none'."""
        with self._lock:
            if consumer in self._paused:
                return 0
            room = self._limits[consumer] - len(self._held[consumer])
            if room <= 0:
                self._full.add(consumer)
            return max(0, room)

    def pause(self, consumer: str) -> None:
        """Have no room until `resume`."""
        with self._lock:
            self._paused.add(consumer)

    def resume(self, consumer: str) -> None:
        """Have room again."""
        with self._lock:
            self._paused.discard(consumer)

    def add(self, token: Token) -> None:
        """Count a new delivery."""
        with self._lock:
            self._held[token.consumer][token.hold.message_id] = token

    def drop_expired(self, now: float) -> bool:
        """Stop counting expired deliveries, which others may have taken; settling them still asks the database."""
        with self._lock:
            for held in self._held.values():
                for number in [number for number, token in held.items() if token.expires_at <= now]:
                    del held[number]
            return self._has_room_again()

    def drop_all(self) -> None:
        """Count nothing any more: the session is gone."""
        with self._lock:
            for held in self._held.values():
                held.clear()

    def claim(
        self, deliveries: Sequence[Delivery], generation: int
    ) -> tuple[list[Delivery], list[SettleFailed]]:
        """Return the deliveries that this call alone may settle now, and those that cannot be settled."""
        mine: list[Delivery] = []
        failed: list[SettleFailed] = []
        with self._lock:
            for delivery in deliveries:
                error = _reason_against(delivery, generation)
                if error is None:
                    delivery.token.claimed = True
                    mine.append(delivery)
                else:
                    failed.append(SettleFailed(delivery, error))
        return mine, failed

    def unsettled(
        self, deliveries: Sequence[Delivery], generation: int
    ) -> tuple[list[Delivery], list[SettleFailed]]:
        """Return the deliveries that could be settled now, and those that could not; claims nothing."""
        with self._lock:
            errors = [_reason_against(delivery, generation) for delivery in deliveries]
        pairs = list(zip(deliveries, errors, strict=True))
        failed = [SettleFailed(delivery, error) for delivery, error in pairs if error is not None]
        return [delivery for delivery, error in pairs if error is None], failed

    def unclaim(self, deliveries: Sequence[Delivery]) -> None:
        """Let these be settled by another call: this one failed."""
        with self._lock:
            for delivery in deliveries:
                delivery.token.claimed = False

    def finish(
        self, deliveries: Sequence[Delivery], done: Collection[Hold]
    ) -> tuple[list[SettleFailed], bool]:
        """Return those whose lease was lost, and whether a full consumer has room again."""
        failed: list[SettleFailed] = []
        with self._lock:
            for delivery in deliveries:
                token: Token = delivery.token
                held = self._held.get(token.consumer, {})
                if held.get(token.hold.message_id) is token:
                    del held[token.hold.message_id]
                if token.hold in done:
                    delivery.settled = True
                else:
                    failed.append(SettleFailed(delivery, _void(delivery)))
            return failed, self._has_room_again()

    def prolong(self, deliveries: Sequence[Delivery], done: Mapping[Hold, float]) -> list[SettleFailed]:
        """Note new expiry times; returns those whose lease was lost."""
        failed: list[SettleFailed] = []
        with self._lock:
            for delivery in deliveries:
                token: Token = delivery.token
                if token.hold in done:
                    delivery.expires_at = token.expires_at = max(token.expires_at, done[token.hold])
                elif not token.claimed:  # else it was settled meanwhile, which is fine
                    failed.append(SettleFailed(delivery, _void(delivery)))
        return failed

    def _has_room_again(self) -> bool:
        freed = {consumer for consumer in self._full if len(self._held[consumer]) < self._limits[consumer]}
        self._full -= freed
        return bool(freed)


def _reason_against(delivery: Delivery, generation: int) -> Exception | None:
    token = delivery.token
    if isinstance(token, Token) and token.claimed:
        return AlreadySettled(f"{delivery!r} has been settled before, or is being settled by another thread")
    if delivery.generation != generation or not isinstance(token, Token):
        return _void(delivery)
    return None


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(
        f"{delivery!r} is no longer leased to this process: its lease ended or its connection is gone; it is redelivered"
    )
