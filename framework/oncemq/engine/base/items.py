"""Items of a run: which deliveries may run, their items, and the outcomes that the history keeps."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, RETURNED, Outcome, Verdict
from oncemq.errors import StrategyBug
from oncemq.ledger.records.history import HistoryRow
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader


def may_run(
    deliveries: Sequence[Delivery], verdicts: Mapping[Delivery, Verdict], held: Collection[str] = ()
) -> tuple[list[Delivery], dict[Delivery, Verdict]]:
    """Return the deliveries that may run, and a verdict for each of the others; both in order.

    A delivery is left out if its key is held, then it is RETURNED whatever was decided about it, or if it has a verdict.
    A verdict may hold the key, too. A caller whose verdicts count all the same puts them over the returned ones.

    Args:
        deliveries: in the order of their arrival.
        verdicts: decided already.
        held: keys that are held from the start.
    """
    if not verdicts and not held:
        return list(deliveries), {}
    waiting = set(held)
    ready: list[Delivery] = []
    left_out: dict[Delivery, Verdict] = {}
    for delivery in deliveries:
        verdict = RETURNED if delivery.key in waiting else verdicts.get(delivery)
        if verdict is None:
            ready.append(delivery)
            continue
        left_out[delivery] = verdict
        if verdict.holds_key:
            waiting.add(delivery.key)
    return ready, left_out


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


_NOTED = frozenset({Outcome.DUPLICATE, Outcome.STALE, Outcome.EXPIRED, Outcome.PARKED})


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
        key=delivery.known_key,
        identity=envelope.identity if envelope is not None else "",
        outcome=code,
        reason=reason,
        attempt=delivery.message.attempt,
        at=now,
    )
