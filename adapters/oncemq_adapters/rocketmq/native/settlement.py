"""Settles deliveries: a copy that goes elsewhere is confirmed before the library's thread lets the original go."""

from collections.abc import Callable, Iterable, Sequence

from oncemq.adapter import SettleFailed
from oncemq.errors import AlreadySettled, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.native.inbox import Held
from oncemq_adapters.rocketmq.remoting.moving import Send, send_copies
from oncemq_adapters.rocketmq.remoting.outgoing import Outgoing

Move = tuple[Delivery, Callable[[Held], Outgoing]]


def acknowledge(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Let deliveries go for good."""
    answers = ((delivery, claim(delivery) or _finish(delivery)) for delivery in deliveries)
    return [SettleFailed(delivery, error) for delivery, error in answers if error is not None]


def move(moves: Sequence[Move], send: Send) -> list[SettleFailed]:
    """Publish a copy of each delivery and let those go whose copy is confirmed; the others stay unsettled."""
    confirmed, failed = send_copies(moves, send, claim, _unclaim)
    finished = ((delivery, _finish(delivery)) for delivery in confirmed)
    return failed + [SettleFailed(delivery, error) for delivery, error in finished if error is not None]


def give_back(deliveries: Iterable[Delivery], leave: Callable[[Held], None]) -> list[SettleFailed]:
    """Have deliveries delivered again: by ourselves, or by others when nothing is delivered here.

    Args:
        deliveries: never started.
        leave: told of a message that waits in a paused inbox.
    """
    failed = []
    for delivery in deliveries:
        error = claim(delivery)
        if error is not None:
            failed.append(SettleFailed(delivery, error))
            continue
        held: Held = delivery.token
        with held.inbox.lock:
            if not held.session.alive:
                failed.append(SettleFailed(delivery, _void(delivery)))
                continue
            delivery.settled = True
            held.delivery = None
            held.inbox.offer(held, first=True)
            held.inbox.left()
        if held.inbox.paused:
            leave(held)
    return failed


def claim(delivery: Delivery) -> SettleError | None:
    """Reserve a delivery for one settlement; return why that is not possible."""
    held = delivery.token
    if not isinstance(held, Held):
        return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from RocketMQ")
    with held.inbox.lock:
        if delivery.settled:
            return AlreadySettled(f"{_describe(delivery)} was settled before")
        if not held.session.alive:
            return _void(delivery)
        if held.claimed or held.delivery is not delivery:
            return AlreadySettled(f"{_describe(delivery)} was settled before")
        held.claimed = True
    return None


def _unclaim(delivery: Delivery) -> None:
    delivery.token.claimed = False


def _finish(delivery: Delivery) -> SettleError | None:
    held: Held = delivery.token
    with held.inbox.lock:
        if not held.session.finish(held):
            return _void(delivery)
        delivery.settled = True
        held.inbox.left()
    return None


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(f"{_describe(delivery)}: librocketmq holds it no more, RocketMQ delivers it again")


def _describe(delivery: Delivery) -> str:
    message = delivery.message
    named = f" {message.message_id!r}" if message.message_id else ""
    return f"message{named} of topic {message.topic!r} for consumer {delivery.token.inbox.consumer!r}"
