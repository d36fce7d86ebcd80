"""Builds the chains of strategies of a consumer: its own, and those of its routes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from oncemq.common.error_text import describe
from oncemq.common.problems import Problem
from oncemq.config.build.consumers.context import BuildContext
from oncemq.config.build.importing import import_object
from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue, reference
from oncemq.config.model.strategy_list import StrategyChoice
from oncemq.contracts.publisher import Publishers
from oncemq.contracts.strategy import Scope, Strategy
from oncemq.errors import ConfigError, OnceMQError
from oncemq.message.expressions import compile_expression


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of strategies of one consumer.

    Args:
        lists: the strategies of each chain; the first is the consumer's own, also of routes without strategies.
        numbers: the number of a route's chain, by the route's value; those that are missing have 0.
    """

    lists: tuple[list[Strategy], ...]
    numbers: Mapping[str, int]

    def of(self, value: str) -> list[Strategy]:
        """Return the strategies of a route."""
        return self.lists[self.numbers.get(value, 0)]


def build_chains(settled: ConsumerSettings, around: BuildContext, publishers: Publishers) -> Chains | None:
    """Return None if a strategy could not be built; all are tried, so that all problems are reported at once.

    A strategy that stands with the same options in several chains is one strategy.
    """
    declared: list[tuple[StrategyChoice, ...]] = [settled.strategies]
    numbers = dict[str, int]()
    places = [settled]
    for value, route in settled.by_route.items():
        if route.strategies not in declared:
            declared.append(route.strategies)
            places.append(route)
        numbers[value] = declared.index(route.strategies)
    longest = max((settled, *settled.by_route.values()), key=lambda each: each.retry.horizon()).retry
    built: list[tuple[StrategyChoice, Strategy]] = []
    lists = [_build(replace(place, retry=longest), around, publishers, built) for place in places]
    whole = tuple(chain for chain in lists if chain is not None)
    return Chains(whole, numbers) if len(whole) == len(lists) else None


def _build(
    settled: ConsumerSettings,
    around: BuildContext,
    publishers: Publishers,
    known: list[tuple[StrategyChoice, Strategy]],
) -> list[Strategy] | None:
    chain: list[Strategy] = []
    complete = True
    scope = _scope(settled, around, publishers)
    for index, choice in enumerate(settled.strategies):
        same = next(
            (strategy for other, strategy in known if other == choice and strategy not in chain), None
        )
        if same is not None:
            chain.append(same)
            continue
        path = settled.path(f"strategies[{index}]")
        try:
            strategy = around.catalog.strategies.get(choice.name)
            if around.dialect and around.engine is None:
                complete = False
                continue
            built = strategy.build(written(choice.options), scope)
            built.name = choice.name
            chain.append(built)
            known.append((choice, built))
        except ConfigError as error:
            around.report.error((*path, choice.name), error)
            complete = False
        except (OnceMQError, WrongValue, ValueError) as error:
            around.report.error(path, error)
            complete = False
        except Exception as error:
            around.report.at(path, f"strategy {choice.name} cannot be made: {describe(error)}")
            complete = False
    return chain if complete else None


def _scope(settled: ConsumerSettings, around: BuildContext, publishers: Publishers) -> Scope:
    def import_for_strategy(name: str) -> Any:
        try:
            return import_object(reference(name), around.folder)
        except WrongValue as error:
            problem = ConfigError([Problem(str(error), error.advice)])
        raise problem

    return Scope(
        app=around.app,
        consumer=f"{around.app}.{settled.ledger_name}",
        dialect=around.dialect,
        engine=around.engine,
        metadata=around.metadata,
        redis=around.redis,
        clock=around.clock,
        keep=settled.keep,
        retry_horizon=settled.retry.horizon(),
        expression=compile_expression,
        import_object=import_for_strategy,
        publishers=publishers,
        generations=around.generations and not settled.instance,
    )
