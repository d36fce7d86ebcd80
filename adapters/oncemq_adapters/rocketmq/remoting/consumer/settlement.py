"""Settles deliveries in bulk: finished messages are settled in their queue, copies are confirmed before the original is settled."""

from collections.abc import Callable, Iterable, Sequence

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import AlreadySettled, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.forwarding import forward
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow, Token
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.producer.forwarding import Send
from oncemq_adapters.rocketmq_client.protocol import Outgoing

Move = tuple[Delivery, Callable[[Token], Outgoing]]


def acknowledge(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Have deliveries finished."""
    failed: list[SettleFailed] = []
    mine: dict[tuple[PrefetchWindow, ProcessQueue], list[Delivery]] = {}
    for delivery in deliveries:
        error = _refusal(delivery)
        if error is None:
            mine.setdefault((delivery.token.window, delivery.token.queue), []).append(delivery)
        else:
            failed.append(SettleFailed(delivery, error))
    for place, together in mine.items():
        mine[place] = _claimed(place[1], together, failed)
    return failed + _finish(mine)


def _claimed(queue: ProcessQueue, deliveries: list[Delivery], failed: list[SettleFailed]) -> list[Delivery]:
    """Reserve deliveries of one queue for one settlement; return those not reserved before."""
    taken = queue.claim_all([delivery.token.stored.offset for delivery in deliveries])
    if not taken:
        return deliveries
    failed += [
        SettleFailed(item, _settled(item.message, item.token)) for item in map(deliveries.__getitem__, taken)
    ]
    return [delivery for at, delivery in enumerate(deliveries) if at not in taken]


def move(moves: Sequence[Move], send: Send) -> list[SettleFailed]:
    """Publish a copy of each delivery and finish those whose copy is confirmed; the others stay unsettled."""
    return forward(moves, send, claim, unclaim, _finish_claimed)


def _finish_claimed(deliveries: Sequence[Delivery]) -> list[SettleFailed]:
    done: dict[tuple[PrefetchWindow, ProcessQueue], list[Delivery]] = {}
    for delivery in deliveries:
        done.setdefault((delivery.token.window, delivery.token.queue), []).append(delivery)
        delivery.token.queue.work.moved += 1
    return _finish(done, fine=False)


def give_back(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Have deliveries redelivered: at once by ourselves, or by the next owner of their queue."""
    failed = []
    for delivery in deliveries:
        error = claim(delivery)
        if error is not None:
            failed.append(SettleFailed(delivery, error))
            continue
        window, queue, stored = delivery.token
        unclaim(delivery)
        delivery.settled = True
        window.again(queue, stored)
        window.on_settled(window, queue, 0, 0)
    return failed


def claim(delivery: Delivery) -> SettleError | None:
    """Reserve a delivery for one settlement; return why that is not possible."""
    error = _refusal(delivery)
    if error is None and not delivery.token.queue.claim(delivery.token.stored.offset):
        return _settled(delivery.message, delivery.token)
    return error


def _refusal(delivery: Delivery) -> SettleError | None:
    token = delivery.token
    if type(token) is not Token:
        return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from RocketMQ")
    if delivery.settled:
        return _settled(delivery.message, token)
    return _void(delivery.message, token) if token.queue.lost else None


def unclaim(delivery: Delivery) -> None:
    """Make a claimed delivery unsettled again."""
    delivery.token.queue.unclaim(delivery.token.stored.offset)


def _finish(
    done: dict[tuple[PrefetchWindow, ProcessQueue], list[Delivery]], *, fine: bool = True
) -> list[SettleFailed]:
    failed = []
    for (window, queue), deliveries in done.items():
        if not queue.finish([delivery.token.stored.offset for delivery in deliveries]):
            failed += [SettleFailed(item, _void(item.message, item.token)) for item in deliveries]
            continue
        for delivery in deliveries:
            delivery.settled = True
        if window.trace is not None:
            window.trace.ended(window.group, deliveries, fine=fine)
        unpacked = sum([delivery.token.stored.unpacked for delivery in deliveries])
        window.on_settled(window, queue, len(deliveries), unpacked)
    return failed


def _settled(message: Message, token: Token) -> AlreadySettled:
    return AlreadySettled(f"{_describe(message, token)} was settled before")


def _void(message: Message, token: Token) -> DeliveryVoid:
    return DeliveryVoid(
        f"{_describe(message, token)}: its queue belongs to another member now, RocketMQ redelivers it"
    )


def _describe(message: Message, token: Token) -> str:
    named = f" {message.message_id!r}" if message.message_id else ""
    return f"message{named} of topic {message.topic!r} for consumer {token.window.consumer!r}"
