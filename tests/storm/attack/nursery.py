"""Processes under attack that start in milliseconds: hundreds of kills are cheap."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from storm.attack.child import Order, main, order_from
from support.forking import TESTS, Child, Forks, serve

__all__ = ["TESTS", "Child", "Nursery"]

MODULES = (
    "oncemq_adapters.embedded.adapter",
    "oncemq_adapters.kafka.adapter",
    "oncemq_adapters.rabbitmq.adapter",
    "oncemq_adapters.rocketmq.remoting.adapter",
    "oncemq_strategies.sequence.strategy",
    "oncemq_strategies.state_machine.strategy",
    "oncemq_strategies.unique_key.strategy",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
)
"""What a child needs."""


class Nursery(Forks):
    """Starts children and learns of their ends; use as a context manager.

    Args:
        folder: where `children.log` collects what they print.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("storm.attack.nursery", folder / "children.log", os.environ)
        self._closing: list[Callable[[], None]] = []

    def at_the_end(self, do: Callable[[], None]) -> None:
        """Have something done when this is closed."""
        self._closing.append(do)

    def close(self) -> None:
        """See Forks."""
        for do in self._closing:
            do()
        super().close()

    def start(self, order: Order) -> Child:
        """Start a child."""
        return self.fork(json.dumps(asdict(order)))


if __name__ == "__main__":
    serve(lambda line: main(order_from(line)), MODULES)
