"""Rules for consumers whose routes have strategies, keys or retries of their own."""

from collections.abc import Iterator, Mapping
from typing import Any

from oncemq.common.problems import Problem
from oncemq.config.build.consumers.chains import Chains
from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.strategy import Strategy

_FOR_ALL = "a key's messages have one order, whichever route they take"


def check_routes(settled: ConsumerSettings, chains: Chains) -> Iterator[tuple[ConsumerSettings, Problem]]:
    """Yield, with the settings of the route, what the routes of a consumer cannot have beside each other."""
    usual = _ordering(settled, chains.lists[0])
    for value, route in settled.by_route.items():
        chain = chains.of(value)
        if chain is chains.lists[0]:
            continue
        own = _ordering(route, chain)
        for name in usual.keys() - own.keys():
            yield (
                route,
                Problem(
                    f"route {value!r} leaves out {name}, by which the consumer orders the messages of a key: {_FOR_ALL}",
                    f"write {name} with the same options in its strategies, too",
                    "strategies",
                ),
            )
        for name in own.keys() - usual.keys():
            yield (
                route,
                Problem(
                    f"route {value!r} orders the messages of a key by {name}, but the consumer does not: {_FOR_ALL}",
                    f"write {name} in the consumer's strategies, and in those of every route that has some",
                    "strategies",
                ),
            )
        for name in own.keys() & usual.keys():
            unlike = _unlike(own[name], usual[name])
            if unlike:
                index = [choice.name for choice in route.strategies].index(name)
                yield (
                    route,
                    Problem(
                        f"route {value!r} has {name} with another {', '.join(unlike)} than the consumer: {_FOR_ALL}",
                        f"write the same {', '.join(unlike)} in both",
                        f"strategies[{index}]",
                    ),
                )


def _ordering(settled: ConsumerSettings, chain: list[Strategy]) -> dict[str, Mapping[str, Any]]:
    """Return the options of the strategies that order a key's messages, but for those that say where a message has its place."""
    return {
        choice.name: {
            name: value for name, value in written(choice.options).items() if name not in strategy.by_message
        }
        for choice, strategy in zip(settled.strategies, chain, strict=True)
        if strategy.traits.holds_key or strategy.traits.promises_order or strategy.traits.counts
    }


def _unlike(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
