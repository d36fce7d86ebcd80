"""Columns that strategies of several consumers decide by: the first consumer updates them, and the others skip."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oncemq.common.problems import Problem
from oncemq.engine.plan import ConsumerPlan


@dataclass(frozen=True, slots=True)
class OwnedColumn:
    """A column that belongs to one consumer of a topic.

    Args:
        topic: its messages are compared with the column.
        column: as `table.column`.
        consumer: the consumer's name.
        where: the strategy's place in the consumer's settings.
    """

    topic: str
    column: str
    consumer: str
    where: str


def owned_columns(plan: ConsumerPlan) -> Iterator[OwnedColumn]:
    """Yield the columns that a consumer's strategies decide by."""
    own = {strategy: f"strategies[{place}]" for place, strategy in enumerate(plan.strategies)}
    for strategy in plan.strategies_on(0):
        for column in strategy.owns():
            yield OwnedColumn(plan.subscription.topic, column, plan.name, own.get(strategy, "routes"))


def check_columns(columns: Iterable[OwnedColumn]) -> Iterator[tuple[str, Problem]]:
    """Yield, with the consumer's name, why columns cannot serve two consumers of a topic."""
    first: dict[tuple[str, str], OwnedColumn] = {}
    for owned in columns:
        other = first.setdefault((owned.topic, owned.column), owned)
        if other.consumer != owned.consumer:
            yield (
                owned.consumer,
                Problem(
                    f"{other.consumer} and {owned.consumer} decide about the messages of topic {owned.topic!r} by the "
                    f"same column {owned.column}: whichever comes first moves it, and the other skips the message",
                    "give one of them a column of its own, leave its `entity` out where the ledger can keep the state "
                    "for each consumer, or write strategies: [unique_key] for it",
                    owned.where,
                ),
            )
