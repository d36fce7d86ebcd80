"""Settles leased deliveries: many in one question, copies confirmed before the original goes."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import timedelta
from typing import Any

from oncemq.adapter import SettleFailed
from oncemq.errors import AlreadySettled, BrokerError, BrokerUnavailable, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.grpc.requests import Sending, acknowledgement, extension
from oncemq_adapters.rocketmq.grpc.shelf import Lease, Shelf
from oncemq_adapters.rocketmq.grpc.statuses import NOT_OURS_NOW, insist, meaning_of, surfaced

Send = Callable[[Sequence[Sending]], Sequence[BrokerError | None]]
Move = tuple[Delivery, Callable[[Lease], Sending]]

TOGETHER = 64
"""Deliveries that are acknowledged in one request."""


class Settler:
    """Speaks with the proxy about deliveries, by the client that a shelf's receiver has now.

    Args:
        client_of: returns a shelf's client.
        send: publishes copies.
        where: the proxy's address, for errors.
        timeout: seconds for each answer.
    """

    def __init__(self, client_of: Callable[[Shelf], Any], send: Send, where: str, timeout: float) -> None:
        self._client_of = client_of
        self._send = send
        self._where = where
        self._timeout = timeout

    def acknowledge(self, deliveries: Iterable[Delivery]) -> list[SettleFailed]:
        """Have deliveries finished."""
        claimed, failed = self._claim(deliveries)
        return failed + self._finish(claimed)

    def move(self, moves: Sequence[Move]) -> list[SettleFailed]:
        """Publish a copy of each delivery and finish those whose copy is confirmed; the others stay unsettled."""
        copies = {id(delivery): copy for delivery, copy in moves}
        claimed, failed = self._claim([delivery for delivery, _ in moves])
        made: list[tuple[Delivery, Sending]] = []
        for delivery in claimed:
            try:
                made.append((delivery, copies[id(delivery)](delivery.token)))
            except BrokerError as error:
                failed.append(self._unsettled(delivery, error))
        confirmed = []
        answers = self._send([copy for _, copy in made]) if made else ()
        for (delivery, _), wrong in zip(made, answers, strict=True):
            if wrong is None:
                confirmed.append(delivery)
            else:
                failed.append(self._unsettled(delivery, wrong))
        return failed + self._finish(confirmed)

    def postpone(self, deliveries: Iterable[tuple[Delivery, timedelta]]) -> list[SettleFailed]:
        """Have deliveries come again after a while, in their place: the broker itself holds their queue meanwhile."""
        delays = {id(delivery): (delivery, delay) for delivery, delay in deliveries}
        claimed, failed = self._claim([delivery for delivery, _ in delays.values()])
        asked = [(one, self._ask_for_time(one, delays[id(one)][1])) for one in claimed]
        for delivery, future in asked:
            try:
                insist(future.result().status)
            except Exception as error:
                failed.append(self._unsettled(delivery, surfaced(error, self._where)))
                continue
            self._settled([delivery])
        return failed

    def extend(self, deliveries: Iterable[Delivery], by: timedelta, now: float) -> list[SettleFailed]:
        """Make leases last so long from now at least; those that somebody is settling are left alone."""
        failed: list[SettleFailed] = []
        asked = []
        until = now + by.total_seconds()
        for delivery in deliveries:
            if not isinstance(delivery.token, Lease) or delivery.settled:
                continue
            if (delivery.expires_at or 0.0) >= until - 1 or not delivery.token.turn.acquire(blocking=False):
                continue
            if delivery.settled or not delivery.token.shelf.ours(delivery):
                delivery.token.turn.release()
                if not delivery.settled:
                    failed.append(SettleFailed(delivery, _void(delivery)))
                continue
            asked.append((delivery, self._ask_for_time(delivery, by)))
        for delivery, future in asked:
            error = self._extended(delivery, future, until)
            delivery.token.turn.release()
            if error is not None:
                failed.append(SettleFailed(delivery, error))
        return failed

    def let_go(self, shelf: Shelf, held: Sequence[Delivery], copy: Callable[[Shelf, Any], Sending]) -> None:
        """Give back what a lost or closed shelf held, for others to have it at once; what fails comes when its lease ends."""
        if shelf.fifo:
            asked = [self._ask_for_time(one, SHORTEST) for one in held]
            wait_for(asked)
            return
        answers = self._send([copy(shelf, one.token.raw) for one in held]) if held else ()
        sent = [one for one, error in zip(held, answers, strict=True) if error is None]
        self._ask_to_finish(shelf, sent)

    def _extended(self, delivery: Delivery, future: Future[Any], until: float) -> Exception | None:
        try:
            answer = future.result()
            insist(answer.status)
        except Exception as error:
            wrong = surfaced(error, self._where)
            return _void(delivery) if getattr(wrong, "code", 0) in NOT_OURS_NOW else wrong
        delivery.token.handle = answer.receipt_handle or delivery.token.handle
        delivery.expires_at = until
        return None

    def _claim(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[SettleFailed]]:
        claimed: list[Delivery] = []
        failed: list[SettleFailed] = []
        mine: set[int] = set()
        for delivery in deliveries:
            error = _foreign(delivery)
            if error is None and id(delivery) in mine:
                error = _settled_before(delivery)
            if error is None:
                delivery.token.turn.acquire()
                error = _settled_before(delivery) if delivery.settled else None
                if error is None and not delivery.token.shelf.ours(delivery):
                    error = _void(delivery)
                if error is not None:
                    delivery.token.turn.release()
            if error is None:
                mine.add(id(delivery))
                claimed.append(delivery)
            else:
                failed.append(SettleFailed(delivery, error))
        return claimed, failed

    def _finish(self, claimed: Sequence[Delivery]) -> list[SettleFailed]:
        by_shelf: dict[tuple[Shelf, str], list[Delivery]] = {}
        for delivery in claimed:
            key = delivery.token.shelf, str(delivery.token.endpoints)
            by_shelf.setdefault(key, []).append(delivery)
        failed: list[SettleFailed] = []
        for (shelf, _), group in by_shelf.items():
            errors = self._ask_to_finish(shelf, group)
            for delivery, error in zip(group, errors, strict=True):
                if error is None:
                    self._settled([delivery])
                elif getattr(error, "code", 0) in NOT_OURS_NOW:
                    failed.append(self._unsettled(delivery, _void(delivery)))
                else:
                    failed.append(self._unsettled(delivery, error))
        return failed

    def _ask_to_finish(self, shelf: Shelf, group: Sequence[Delivery]) -> list[Exception | None]:
        parts = [group[at : at + TOGETHER] for at in range(0, len(group), TOGETHER)]
        asked = [(part, self._ask_to_acknowledge(shelf, part)) for part in parts]
        errors: list[Exception | None] = []
        for part, future in asked:
            errors += self._finished(part, future)
        return errors

    def _ask_to_acknowledge(self, shelf: Shelf, part: Sequence[Delivery]) -> Future[Any]:
        handles = [(one.token.message_id, one.token.handle) for one in part]
        request = acknowledgement(shelf.group, shelf.topic, handles)
        return self._ask(shelf, "ack_message_async", part[0].token.endpoints, request)

    def _ask_for_time(self, delivery: Delivery, by: timedelta) -> Future[Any]:
        token: Lease = delivery.token
        shelf = token.shelf
        request = extension(shelf.group, shelf.topic, token.message_id, token.handle, max(by, SHORTEST))
        return self._ask(shelf, "change_invisible_duration_async", token.endpoints, request)

    def _ask(self, shelf: Shelf, what: str, endpoints: Any, request: Any) -> Future[Any]:
        try:
            client = self._client_of(shelf)
            call = getattr(client.rpc_client, what)
            future: Future[Any] = call(endpoints, request, metadata=client.sign(), timeout=self._timeout)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        return future

    def _finished(self, part: Sequence[Delivery], future: Future[Any]) -> list[Exception | None]:
        try:
            answer = future.result()
        except Exception as error:
            return [surfaced(error, self._where)] * len(part)
        by_handle = {entry.receipt_handle: meaning_of(entry.status) for entry in answer.entries}
        overall = meaning_of(answer.status) if not answer.entries else None
        return [by_handle.get(one.token.handle, overall or _unanswered(answer)) for one in part]

    def _settled(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.settled = True
            delivery.token.shelf.settled([delivery])
            delivery.token.turn.release()

    def _unsettled(self, delivery: Delivery, error: Exception) -> SettleFailed:
        delivery.token.turn.release()
        return SettleFailed(delivery, error)


SHORTEST = timedelta(seconds=3)
"""The shortest lease that was always seen to end."""


def _unanswered(answer: Any) -> Exception:
    return meaning_of(answer.status) or BrokerUnavailable(
        "RocketMQ's proxy did not say what became of a message"
    )


def _foreign(delivery: Delivery) -> SettleError | None:
    if isinstance(delivery.token, Lease):
        return None
    return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from RocketMQ's proxy")


def _settled_before(delivery: Delivery) -> AlreadySettled:
    return AlreadySettled(f"{_describe(delivery)} was settled before")


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(
        f"{_describe(delivery)}: its lease has ended or its connection was lost, it is delivered again"
    )


def _describe(delivery: Delivery) -> str:
    message = delivery.message
    named = f" {message.message_id!r}" if message.message_id else ""
    return f"message{named} of topic {message.topic!r} for consumer {delivery.token.shelf.consumer!r}"
