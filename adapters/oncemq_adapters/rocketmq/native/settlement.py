"""Settles deliveries: a copy that goes elsewhere is confirmed before the library's thread lets the original go."""

from collections.abc import Callable, Iterable, Sequence

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import AlreadySettled, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.forwarding import claim_each, forward
from oncemq_adapters.rocketmq.native.inbox import Held, Holding, Inbox
from oncemq_adapters.rocketmq.remoting.producer.forwarding import Send
from oncemq_adapters.rocketmq_client.protocol import Outgoing

Move = tuple[Delivery, Callable[[Held], Outgoing]]


def acknowledge(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Let deliveries go for good."""
    claimed, failed = claim_each(deliveries, claim)
    return failed + _finish(claimed)


def move(moves: Sequence[Move], send: Send) -> list[SettleFailed]:
    """Publish a copy of each delivery and let those go whose copy is confirmed; the others stay unsettled."""
    return forward(moves, send, claim, _unclaim, _finish)


def give_back(deliveries: Iterable[Delivery], leave: Callable[[Held], None]) -> list[SettleFailed]:
    """Have deliveries delivered again: by ourselves, or by others when nothing is delivered here.

    Args:
        deliveries: never started.
        leave: called with a message that waits in a paused inbox.
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
            held.inbox.again(held)
            held.inbox.left([held])
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


def _finish(deliveries: Sequence[Delivery]) -> list[SettleFailed]:
    """Let claimed deliveries go: those of one consumer with one word to the library's process."""
    parts: dict[tuple[Inbox, Holding], list[Delivery]] = {}
    for delivery in deliveries:
        parts.setdefault((delivery.token.inbox, delivery.token.session), []).append(delivery)
    failed = []
    for (inbox, session), part in parts.items():
        held = [delivery.token for delivery in part]
        with inbox.lock:
            gone = session.finish(held)
            if gone:
                for delivery in part:
                    delivery.settled = True
                inbox.left(held)
        if gone:
            session.let_pass(held)
        else:
            failed += [SettleFailed(delivery, _void(delivery)) for delivery in part]
    return failed


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(f"{_describe(delivery)}: librocketmq no longer holds it, RocketMQ redelivers it")


def _describe(delivery: Delivery) -> str:
    message = delivery.message
    named = f" {message.message_id!r}" if message.message_id else ""
    return f"message{named} of topic {message.topic!r} for consumer {delivery.token.inbox.consumer!r}"
