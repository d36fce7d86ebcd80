"""Catalog of adapters and strategies: those installed, and those that a test or an app adds."""

from collections.abc import Mapping
from typing import Any

from oncemq.contracts.adapter import Adapter
from oncemq.contracts.strategy import Strategy
from oncemq.registry import ADAPTERS, STRATEGIES, Registry

_SCHEMES = {"rabbitmq": "amqp", "rabbitmqs": "amqps", "rabbit": "amqp", "rmq": "amqp", "pyamqp": "amqp"}
"""Schemes of other frameworks."""


class Catalog:
    """Adapters by URL scheme and strategies by name.

    Args:
        adapters: further adapters, by scheme; they override installed ones.
        strategies: further strategies, by name; they override installed ones.
    """

    def __init__(
        self,
        adapters: Mapping[str, type[Any]] | None = None,
        strategies: Mapping[str, type[Strategy]] | None = None,
    ) -> None:
        self.adapters: Registry[Adapter] = Registry(ADAPTERS, "broker scheme", adapters, _SCHEMES)
        self.strategies: Registry[Strategy] = Registry(STRATEGIES, "strategy", strategies)
