"""Processes under attack that start in milliseconds: hundreds of kills are cheap."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Self

from storm.attack.child import Order, main
from support.forking import TESTS, Child, serve, shared_forks

_MODULE = "storm.attack.nursery"
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


class Nursery:
    """Starts children, and ends those that still live when its block ends; use as a context manager.

    Args:
        folder: where `children.log` collects what they print.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "children.log"
        self._log.touch()
        self._children: list[Child] = []
        self._closing: list[Callable[[], None]] = []

    def at_the_end(self, do: Callable[[], None]) -> None:
        """Have something done when this is closed."""
        self._closing.append(do)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for do in self._closing:
            do()
        for child in self._children:
            child.send(signal.SIGKILL)
        for child in self._children:
            child.wait()

    def start(self, order: Order) -> Child:
        """Start a child."""
        child = shared_forks(_MODULE).fork(json.dumps([str(self._log), asdict(order)]))
        self._children.append(child)
        return child

    def said(self, most: int = 4000) -> str:
        """Return the end of what children have printed."""
        return self._log.read_text(errors="replace")[-most:]


def _grow_up(line: str) -> int:
    """Do what a child is there for, in its own test's folder."""
    log, order = json.loads(line)
    os.chdir(Path(log).parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)
    return main(Order(**order))


if __name__ == "__main__":
    serve(_grow_up, MODULES)
