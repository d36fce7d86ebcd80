"""Which rows of the outbox may be sent together: one of each key, so that a refused one is never overtaken."""

from collections.abc import Iterable

from oncemq.common.error_text import describe
from oncemq.errors import BrokerError
from oncemq.ledger.messages.outbox import Stored

Lane = tuple[str, str]
"""Topic and key."""


def lane_of(one: Stored) -> Lane | None:
    """Return what has an order: one key of one topic; None for messages without a key."""
    return None if one.message.key is None else (one.topic, one.message.key)


def bar(one: Stored, barred: set[Lane]) -> None:
    """Let nothing later of this key be sent; messages without a key have no order."""
    lane = lane_of(one)
    if lane is not None:
        barred.add(lane)


def first_of_each_key(ready: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Return what may be sent together, so that a refused message is never overtaken, and the rest."""
    seen: set[Lane] = set()
    wave: list[Stored] = []
    rest: list[Stored] = []
    for one in ready:
        lane = lane_of(one)
        if lane in seen:
            rest.append(one)
            continue
        if lane is not None:
            seen.add(lane)
        wave.append(one)
    return wave, rest


def by_topic(wave: Iterable[Stored]) -> Iterable[tuple[str, list[Stored]]]:
    """Group what can be published in one call."""
    topics: dict[str, list[Stored]] = {}
    for one in wave:
        topics.setdefault(one.topic, []).append(one)
    return topics.items()


def alike(
    refused: Iterable[tuple[Stored, BrokerError]],
) -> list[tuple[str, int, list[tuple[Stored, BrokerError]]]]:
    """Group what is put off equally long, for the same reason: topic, tries so far, rows."""
    groups: dict[tuple[str, int, str], list[tuple[Stored, BrokerError]]] = {}
    for one, error in refused:
        groups.setdefault((one.topic, one.attempts, describe(error)), []).append((one, error))
    return [(topic, attempts, rows) for (topic, attempts, _), rows in groups.items()]
