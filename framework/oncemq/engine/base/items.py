"""Items of a run: created from its deliveries, and the outcomes that the history keeps."""

from collections.abc import Sequence
from datetime import datetime

from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Outcome, Verdict
from oncemq.errors import StrategyBug
from oncemq.ledger.records.history import HistoryRow
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader


def make_items(deliveries: Sequence[Delivery], reader: Reader) -> list[Item]:
    """Return fresh items; the payload decoded at intake serves the first run, later runs decode again."""
    return [make_item(delivery, reader) for delivery in deliveries]


def make_item(delivery: Delivery, reader: Reader) -> Item:
    """Return a fresh item of one delivery."""
    envelope, payload = delivery.envelope, delivery.payload
    if envelope is None:
        raise StrategyBug(f"{delivery!r} was never decoded")
    if payload is None:
        payload = reader.decode(delivery.message)
    delivery.payload = None
    return Item(delivery, envelope, payload)


_NOTED = frozenset({Outcome.DUPLICATE, Outcome.STALE, Outcome.PARKED})


def history_rows(run: Run, now: datetime) -> list[HistoryRow]:
    """Return a history row for every item of `run` that is acknowledged without its effect."""
    return [
        history_row(run.consumer, item, item.verdict.outcome.value, item.verdict.reason, now)
        for item in run.items
        if item.verdict is not None and item.verdict is not PROCEED and _is_news(item, item.verdict)
    ]


def _is_news(item: Item, verdict: Verdict) -> bool:
    """A message that was parked before and still waits already has its row."""
    again = verdict.outcome is Outcome.PARKED and item.delivery.source is not None
    return verdict.outcome in _NOTED and not again


def history_row(consumer: str, item: Item, outcome: str, reason: str, now: datetime) -> HistoryRow:
    """Return the row with the outcome of `item`."""
    envelope = item.envelope
    return HistoryRow(
        consumer=consumer,
        topic=envelope.topic,
        key=envelope.key,
        identity=envelope.identity,
        outcome=outcome,
        reason=reason,
        attempt=envelope.attempt,
        at=now,
    )


def failed_row(consumer: str, delivery: Delivery, code: str, reason: str, now: datetime) -> HistoryRow:
    """Return the row with the reason why `delivery` is redelivered (code `retry`), or dead-lettered."""
    envelope = delivery.envelope
    return HistoryRow(
        consumer=consumer,
        topic=delivery.message.topic,
        key=envelope.key if envelope is not None else "",
        identity=envelope.identity if envelope is not None else "",
        outcome=code,
        reason=reason,
        attempt=delivery.message.attempt,
        at=now,
    )
