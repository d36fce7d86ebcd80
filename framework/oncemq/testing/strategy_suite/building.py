"""Builds the suite's chains from names and options."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.verification import Answer
from oncemq.message.envelope import Envelope
from oncemq.redis import RedisClient
from oncemq.registry import STRATEGIES, Registry
from oncemq.testing.scopes import scope_for
from oncemq.testing.strategy_suite import effects


def build_chain(
    engine: Engine,
    strategies: Sequence[tuple[str, Mapping[str, Any]]],
    consumer: str,
    verify: Callable[[Envelope], Answer],
    clock: Clock,
    redis: RedisClient | None = None,
) -> tuple[Strategy, ...]:
    """Return strategies as an app would build them, from registry names and options."""
    registry: Registry[Strategy] = Registry(STRATEGIES, "strategy")
    scope = scope_for(consumer, engine, clock=clock, redis=redis)
    places = {"$TABLE": effects.entities_name(consumer), "$VERIFY": verify}
    return tuple(registry.get(name).build(_filled(options, places), scope) for name, options in strategies)


def _filled(options: Any, places: Mapping[str, Any]) -> Any:
    if isinstance(options, Mapping):
        return {name: _filled(value, places) for name, value in options.items()}
    return places.get(options, options) if isinstance(options, str) else options
