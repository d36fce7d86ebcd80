"""Builds what a consumer needs for its `on_dead` function: the function with its arguments, and the last step of the chain."""

from collections.abc import Callable, Sequence
from typing import Any

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.final_failure import FinalFailure
from oncemq.contracts.publisher import Publisher, Publishers
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Item, Run
from oncemq.engine.base.final_failures import FinalGuard
from oncemq.errors import OnceMQError
from oncemq.handler.binding import BoundHandler, bind


def guard_of(settled: ConsumerSettings) -> tuple[Strategy, ...]:
    """Return the chain's step that keeps what failed for good from running again."""
    return (FinalGuard(),) if settled.on_dead is not None else ()


def bind_on_dead(
    settled: ConsumerSettings,
    chain: Sequence[Strategy],
    find: Callable[[Any], Any],
    publishers: Publishers,
    report: Reporter,
) -> BoundHandler | None:
    """Return the consumer's `on_dead` function; None without one, or if it is not usable, which is reported.

    Args:
        settled: the consumer's settings.
        chain: its strategies.
        find: returns the function that a name stands for; None when it has reported why there is none.
        publishers: makes the Publisher that it may request.
        report: receives problems.
    """
    if settled.on_dead is None:
        return None
    path = settled.path("on_dead")
    if not settled.transactional or not any(strategy.records_identity for strategy in chain):
        report.at(
            path,
            f"{settled.name}: on_dead shares the record by which unique_key and tiered know an applied message, and this consumer has none",
            "write effects: database and strategies: [unique_key, …], without `table`",
        )
        return None
    function = find(settled.on_dead)
    if function is None:
        return None
    try:
        bound = bind(
            function,
            name=settled.on_dead
            if isinstance(settled.on_dead, str)
            else getattr(function, "__name__", "on_dead"),
            provided={Publisher: publishers.of_item, FinalFailure: _failure},
            shared={Publisher: publishers.of_run},
            effects=settled.effects,
            body_format=settled.format,
        )
    except OnceMQError as error:
        report.error(path, error)
        return None
    if bound.is_async or bound.is_batch:
        report.at(
            path,
            f"{settled.name}: {bound.name} is {'an async function' if bound.is_async else 'for batches'}: on_dead is called for "
            "one message, and waits for the function",
            "write a plain function: def compensate(order: OrderPaid, failure: FinalFailure, session: Session)",
        )
        return None
    return bound


def _failure(run: Run, item: Item) -> FinalFailure:  # noqa: ARG001
    failure: FinalFailure = run.unit.notes[FinalFailure]
    return failure
