"""Settles deliveries: copies are confirmed before their original is passed."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from oncemq.common.durations import format_duration
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed
from oncemq.errors import AlreadySettled, BrokerError, BrokerRefused, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.forwarding import claim_each, forward
from oncemq_adapters.kafka.group_member import GroupMember
from oncemq_adapters.kafka.names import Place
from oncemq_adapters.kafka.records import Record, dead_record, longest_step, original_of, retry_record
from oncemq_adapters.kafka.tracker import Entry, State

Send = Callable[[Sequence[Record]], Sequence[BrokerError | None]]


class Settlement:
    """Settles what members have delivered; called from any thread.

    Args:
        send: publishes, and returns an error or None for each record.
        now: returns the time.
        kept: how long retries are kept from their publication.
    """

    def __init__(self, send: Send, now: Callable[[], datetime], kept: timedelta) -> None:
        self._send = send
        self._now = now
        self._kept = kept

    def acknowledge(self, deliveries: Sequence[Delivery]) -> list[SettleFailed]:
        """Pass these."""
        claimed, failed = claim_each(deliveries, _claim)
        return failed + self._finish(claimed)

    def retry(self, later: Sequence[RetryRequest]) -> list[SettleFailed]:
        """Publish each to the group's retries, then pass it."""
        moves = [(request.delivery, partial(self._later, request)) for request in later]
        return forward(moves, self._send_all, _claim, _unclaim, self._finish)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> list[SettleFailed]:
        """Publish each to the group's dead letters, then pass it."""
        moves = [(request.delivery, partial(self._dead, request)) for request in dead]
        return forward(moves, self._send_all, _claim, _unclaim, self._finish)

    def give_back(self, deliveries: Sequence[Delivery]) -> list[SettleFailed]:
        """Return these, which were never started, to their partition."""
        claimed, failed = claim_each(deliveries, _claim)
        by_member: dict[GroupMember, list[Entry]] = {}
        for delivery in claimed:
            delivery.settled = True
            by_member.setdefault(delivery.token.tracker.owner, []).append(delivery.token)
        for member, entries in by_member.items():
            member.give_back(entries)
        return failed

    def _send_all(self, records: Sequence[Record]) -> Sequence[BrokerError | None]:
        return self._send(records)

    def _later(self, request: RetryRequest, entry: Entry) -> Record:
        if request.delay >= self._kept:
            raise BrokerRefused(
                f"a retry after {format_duration(request.delay)} would be removed before it is due: "
                f"Kafka keeps it for {format_duration(self._kept)} – ask for less, or raise the broker's retry_retention"
            )
        parts, message = original_of(entry.raw), request.delivery.message
        due = self._now() + request.delay
        retries = _place(entry).retries
        return retry_record(retries, longest_step(request.delay), message, parts, request.headers, due)

    def _dead(self, request: DeadLetterRequest, entry: Entry) -> Record:
        parts, dead = original_of(entry.raw), _place(entry).dead
        return dead_record(dead, request.delivery.message, parts, request.headers, self._now())

    def _finish(self, claimed: Sequence[Delivery]) -> list[SettleFailed]:
        failed: list[SettleFailed] = []
        owners: set[GroupMember] = set()
        by_tracker: dict[int, list[Delivery]] = {}
        for delivery in claimed:
            by_tracker.setdefault(id(delivery.token.tracker), []).append(delivery)
        for mine in by_tracker.values():
            tracker = mine[0].token.tracker
            late = {id(entry) for entry in tracker.settle([delivery.token for delivery in mine])}
            owners.add(tracker.owner)
            for delivery in mine:
                if id(delivery.token) in late:
                    failed.append(SettleFailed(delivery, _void(delivery)))
                else:
                    delivery.settled = True
        for owner in owners:
            owner.settled()
        return failed


def _claim(delivery: Delivery) -> SettleError | None:
    entry = delivery.token
    if not isinstance(entry, Entry):
        return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from Kafka")
    if delivery.settled:
        return AlreadySettled(f"{_describe(delivery)} was settled before")
    state = entry.tracker.claim(entry)
    if state is None:
        return None
    if state in (State.SETTLED, State.CLAIMED):
        return AlreadySettled(f"{_describe(delivery)} was settled before")
    return _void(delivery)


def _place(entry: Entry) -> Place:
    place: Place = entry.tracker.owner.place
    return place


def _unclaim(delivery: Delivery) -> None:
    delivery.token.tracker.unclaim(delivery.token)


def _void(delivery: Delivery) -> DeliveryVoid:
    return DeliveryVoid(f"{_describe(delivery)}: its partition is another member's now, it is redelivered")


def _describe(delivery: Delivery) -> str:
    return f"message {delivery.message.message_id!r} of topic {delivery.message.topic!r}"
