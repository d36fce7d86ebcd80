"""Settles leased deliveries: many in one question, copies confirmed before the original goes."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures import wait as wait_for
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import AlreadySettled, BrokerError, BrokerUnavailable, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.forwarding import claim_each, forward
from oncemq_adapters.rocketmq.grpc.errors import NOT_OURS_NOW, insist, meaning_of, surfaced
from oncemq_adapters.rocketmq.grpc.held_leases import Lease, Shelf
from oncemq_adapters.rocketmq.grpc.requests import Sending, acknowledgement, extension

Send = Callable[[Sequence[Sending]], Sequence[BrokerError | None]]
Move = tuple[Delivery, Callable[[Lease], Sending]]

TOGETHER = 64
"""Deliveries that are acknowledged in one request, and copied before their originals are."""


class Settler:
    """Speaks with the proxy about deliveries, by the client that a shelf's receiver has now.

    No lock is held while anybody waits: a delivery is claimed at once or refused, all questions of a call are asked
    before the first answer is awaited, and each delivery is done with when its own answer has come.

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
        claimed, failed = claim_each(deliveries, _claim)
        return failed + self._when_known(claimed, self._finish)

    def move(self, moves: Sequence[Move]) -> list[SettleFailed]:
        """Publish a copy of each delivery and finish those whose copy is confirmed; the others stay unsettled.

        A part at a time: a process that dies meanwhile leaves few copies beside their originals.
        """
        parts = [moves[at : at + TOGETHER] for at in range(0, len(moves), TOGETHER)]
        return [failed for part in parts for failed in self._move(part)]

    def _move(self, moves: Sequence[Move]) -> list[SettleFailed]:
        missing = [(delivery, partial(_unless_copied, copy)) for delivery, copy in moves]
        return forward(missing, self._send, _claim, _unclaim, self._finish_copied)

    def _finish_copied(self, claimed: Sequence[Delivery]) -> list[SettleFailed]:
        for delivery in claimed:
            delivery.token.copied = True
        return self._when_known(claimed, self._finish)

    def postpone(self, deliveries: Iterable[tuple[Delivery, timedelta]]) -> list[SettleFailed]:
        """Have deliveries come again after a while, in their place: the broker itself holds their queue meanwhile."""
        delays = {id(delivery): (delivery, delay) for delivery, delay in deliveries}
        claimed, failed = claim_each([delivery for delivery, _ in delays.values()], _claim)

        def ask(some: Sequence[Delivery]) -> list[SettleFailed]:
            asked = {self._ask_for_time(item, delays[id(item)][1]): item for item in some}
            return [
                error for future in as_completed(asked) for error in self._postponed(asked[future], future)
            ]

        return failed + self._when_known(claimed, ask)

    def extend(self, deliveries: Iterable[Delivery], by: timedelta, now: float) -> list[SettleFailed]:
        """Make leases last at least so long from now; those that are being settled are skipped."""
        failed: list[SettleFailed] = []
        asked: list[tuple[Delivery, Event]] = []
        errors: dict[int, Exception] = {}
        until = now + by.total_seconds()
        for delivery in deliveries:
            token = delivery.token
            if not isinstance(token, Lease) or delivery.settled or (delivery.expires_at or 0.0) >= until - 1:
                continue
            over = token.extend()
            if over is None:
                continue
            if not token.shelf.ours(delivery):
                token.extended("")
                failed.append(SettleFailed(delivery, _void(delivery)))
                continue
            asked.append((delivery, over))
            future = self._ask_for_time(delivery, by)
            future.add_done_callback(partial(self._extended, delivery, until, errors))
        for delivery, over in asked:
            if not over.wait(self._patience):
                errors[id(delivery)] = BrokerUnavailable(f"RocketMQ's proxy at {self._where} did not answer")
        return failed + [SettleFailed(item, errors[id(item)]) for item, _ in asked if id(item) in errors]

    def let_go(self, shelf: Shelf, held: Sequence[Delivery], copy: Callable[[Shelf, Any], Sending]) -> None:
        """Give back what a closed shelf held, for others to have it at once; what fails comes when its lease ends.

        What comes by itself as soon is left alone: a copy of it would be one message more.
        """
        if shelf.fifo:
            wait_for([self._ask_for_time(delivery, SHORTEST) for delivery in held])
            return
        asked: list[Future[Any]] = []

        def finish(copied: Sequence[Delivery]) -> list[SettleFailed]:
            asked.extend(self._ask_to_finish(copied))
            return []

        make = partial(_unless_copied, lambda token: copy(shelf, token.raw))
        for at in range(0, len(held), TOGETHER):
            part = shelf.leased(held[at : at + TOGETHER], SHORTEST)
            # Not claimed: nothing else settles what a closed shelf holds.
            forward([(delivery, make) for delivery in part], self._send, lambda _: None, _unclaim, finish)
        wait_for(asked)

    @property
    def _patience(self) -> float:
        """Seconds after which an answer that has a time-out of its own will not come any more."""
        return 2 * self._timeout

    def _extended(
        self, delivery: Delivery, until: float, errors: dict[int, Exception], future: Future[Any]
    ) -> None:
        """Take the answer to an extension; on the thread that received it."""
        handle = ""
        try:
            answer = future.result()
            insist(answer.status)
            handle, delivery.expires_at = answer.receipt_handle, until
        except Exception as error:
            wrong = surfaced(error, self._where)
            errors[id(delivery)] = _void(delivery) if getattr(wrong, "code", 0) in NOT_OURS_NOW else wrong
        finally:
            delivery.token.extended(handle)

    def _when_known(
        self, claimed: Sequence[Delivery], do: Callable[[Sequence[Delivery]], list[SettleFailed]]
    ) -> list[SettleFailed]:
        """Do it at once with those whose handle is known; the others' extensions are answered soon."""
        extensions = [(delivery, delivery.token.extension) for delivery in claimed]
        failed = do([delivery for delivery, over in extensions if over is None])
        late = [(delivery, over) for delivery, over in extensions if over is not None]
        for _, over in late:
            over.wait(self._patience)
        return failed + (do([delivery for delivery, _ in late]) if late else [])

    def _finish(self, claimed: Sequence[Delivery]) -> list[SettleFailed]:
        asked = self._ask_to_finish(claimed)
        return [error for future in as_completed(asked) for error in self._finished(asked[future], future)]

    def _ask_to_finish(self, deliveries: Sequence[Delivery]) -> dict[Future[Any], Sequence[Delivery]]:
        by_shelf: dict[tuple[Shelf, str], list[Delivery]] = {}
        for delivery in deliveries:
            key = delivery.token.shelf, str(delivery.token.endpoints)
            by_shelf.setdefault(key, []).append(delivery)
        parts = [
            (shelf, group[at : at + TOGETHER])
            for (shelf, _), group in by_shelf.items()
            for at in range(0, len(group), TOGETHER)
        ]
        return {self._ask_to_acknowledge(shelf, part): part for shelf, part in parts}

    def _ask_to_acknowledge(self, shelf: Shelf, part: Sequence[Delivery]) -> Future[Any]:
        handles = [(delivery.token.message_id, delivery.token.handle) for delivery in part]
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

    def _postponed(self, delivery: Delivery, future: Future[Any]) -> list[SettleFailed]:
        try:
            insist(future.result().status)
        except Exception as error:
            return [_unsettled(delivery, surfaced(error, self._where))]
        _settled(delivery)
        return []

    def _finished(self, part: Sequence[Delivery], future: Future[Any]) -> list[SettleFailed]:
        failed = []
        for delivery, error in zip(part, self._answers(part, future), strict=True):
            if error is None:
                _settled(delivery)
            else:
                lost = getattr(error, "code", 0) in NOT_OURS_NOW
                failed.append(_unsettled(delivery, _void(delivery) if lost else error))
        return failed

    def _answers(self, part: Sequence[Delivery], future: Future[Any]) -> list[Exception | None]:
        try:
            answer = future.result()
        except Exception as error:
            return [surfaced(error, self._where)] * len(part)
        by_handle = {entry.receipt_handle: meaning_of(entry.status) for entry in answer.entries}
        overall = meaning_of(answer.status) if not answer.entries else None
        return [by_handle.get(delivery.token.handle, overall or _unanswered(answer)) for delivery in part]


SHORTEST = timedelta(seconds=3)
"""The shortest lease that was always seen to end."""


def _claim(delivery: Delivery) -> SettleError | None:
    """Reserve a delivery for one settlement; return why that is not possible. Never waits."""
    if not isinstance(delivery.token, Lease):
        return DeliveryVoid(
            f"a delivery of topic {delivery.message.topic!r} did not come from RocketMQ's proxy"
        )
    if delivery.settled or not delivery.token.claim():
        return AlreadySettled(f"{_describe(delivery)} was settled before")
    if not delivery.token.shelf.ours(delivery):
        delivery.token.unclaim()
        return _void(delivery)
    return None


def _unless_copied(copy: Callable[[Lease], Sending], token: Lease) -> Sending | None:
    return None if token.copied else copy(token)


def _settled(delivery: Delivery) -> None:
    # Stays claimed: it is never settled or extended again.
    delivery.settled = True
    delivery.token.shelf.settled([delivery])


def _unclaim(delivery: Delivery) -> None:
    delivery.token.unclaim()


def _unsettled(delivery: Delivery, error: Exception) -> SettleFailed:
    _unclaim(delivery)
    return SettleFailed(delivery, error)


def _unanswered(answer: Any) -> Exception:
    return meaning_of(answer.status) or BrokerUnavailable(
        "RocketMQ's proxy did not say what became of a message"
    )


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(
        f"{_describe(delivery)}: its lease has ended or its connection was lost, it is redelivered"
    )


def _describe(delivery: Delivery) -> str:
    message = delivery.message
    named = f" {message.message_id!r}" if message.message_id else ""
    return f"message{named} of topic {message.topic!r} for consumer {delivery.token.shelf.consumer!r}"
