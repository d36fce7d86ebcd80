"""`none`: at-least-once, said out loud."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, UnitKind
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.errors import UnknownName
from oncemq.registry import STRATEGIES, Registry
from oncemq_strategies.common.options import Options


class NoStrategy(Strategy):
    """Every delivery runs the handler; a message that is delivered twice takes effect twice."""

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset(UnitKind))
    by_identity = True

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Make one; it has no options."""
        Options("none", options, scope).known()
        return cls()

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Refuse a chain that says two things at once; guards may stand beside it."""
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
        return False  # given to the app directly: it is not ours to judge
