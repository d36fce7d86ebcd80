"""`none`: at-least-once, by explicit choice."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, UnitKind
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.errors import UnknownName
from oncemq.registry import STRATEGIES, Registry
from oncemq_strategies.common.options import Options


class NoStrategy(Strategy):
    """Runs the handler for every delivery; a message that is delivered twice takes effect twice."""

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset(UnitKind), per_consumer=True)
    by_identity = True

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy; it has no options."""
        Options("none", options, scope).known()
        return cls()

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Refuse a chain that contradicts itself; guards may be combined with it."""
        registry: Registry[Strategy] = Registry(STRATEGIES, "strategy")
        for name in facts.strategies:
            if name != "none" and _decides(registry, name):
                yield Problem(
                    f"`none` says that a message may take effect twice, {name} says once",
                    f"leave out `none`, or {name}",
                    "strategies",
                )


def _decides(registry: Registry[Strategy], name: str) -> bool:
    try:
        return registry.get(name).traits.decides
    except UnknownName:
        return False  # given to the app directly: not checked here
