"""Puts the killer inside Kafka's adapter: copies that the broker has, copies confirmed, offsets that the broker has taken.

What the client calls back is looked up in a class before an object could be wrapped, so the classes are: in a process under
attack there is one adapter.
"""

from collections.abc import Callable, Sequence
from typing import Any

from oncemq_adapters.kafka.commits import Commits
from oncemq_adapters.kafka.producer import Producer
from storm.attack.killer import PROGRESS, Killer


def wire_kafka(adapter: Any, killer: Killer) -> None:
    """Wire the adapter of this process."""
    settlement = adapter._settlement
    settlement._send = _confirming(settlement._send, killer)
    if killer.wants("retry-sent") or killer.wants("dead-letter-sent"):
        _wire_answers(killer)
    if killer.wants(PROGRESS):
        _wire_progress(killer)


def _confirming(send: Callable[[Sequence[Any]], Sequence[Any]], killer: Killer) -> Any:
    def sent(records: Sequence[Any]) -> Sequence[Any]:
        errors = send(records)
        if not all(errors):
            killer(f"{_what(records[0])}-confirmed")
        return errors

    return sent


def _wire_answers(killer: Killer) -> None:
    """Die when the broker has a copy, and no one has looked at its answer."""
    produce = Producer._produce

    def produced(self: Producer, client: Any, record: Any, answer: Any) -> None:
        def answered(error: Any, raw: Any) -> None:
            if error is None:
                killer(f"{_what(record)}-sent")
            answer(error, raw)

        produce(self, client, record, answered)

    Producer._produce = produced  # type: ignore[method-assign]


def _wire_progress(killer: Killer) -> None:
    """Die when the broker has taken an offset behind the first one, and no one has looked at its answer."""
    answered = Commits.answered
    first: dict[tuple[str, int], int] = {}

    def answering(self: Commits, error: Any, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            before = first.setdefault((partition.topic, partition.partition), partition.offset)
            if error is None and partition.error is None and partition.offset > before:
                killer(PROGRESS)
        answered(self, error, partitions)

    Commits.answered = answering  # type: ignore[method-assign]


def _what(record: Any) -> str:
    return "dead-letter" if record.topic.endswith(".dead-letters") else "retry"
