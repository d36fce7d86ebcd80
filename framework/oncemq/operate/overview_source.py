"""Reads the overview again and again, over connections that stay open: for `oncemq top`, and for any page that updates itself."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from sqlalchemy.exc import SQLAlchemyError

from oncemq.common.error_text import describe
from oncemq.contracts.adapter import Adapter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import BrokerError, InfrastructureError, LedgerError, RedisRefused
from oncemq.operate import databases, overview
from oncemq.operate.brokers import CLOSE_WITHIN, by_broker
from oncemq.operate.overview import RECENTLY, Overview
from oncemq.redis import probe

LETTERS_EVERY = 30.0
"""Seconds between two counts of dead letters, which are read one by one."""


class OverviewSource:
    """The overview of an app at any moment; a server that is away hides only what it knows. Close it at the end.

    Args:
        load: builds the app's plan; called again for a broker whose connection was lost.
    """

    def __init__(self, load: Callable[[], AppPlan]) -> None:
        self._load = load
        self._plan = load()
        self._adapters: dict[str, Adapter] = {}
        self._letters: dict[str, Any] = {}
        self._letters_at = float("-inf")
        self._proven = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> Overview:
        """Return the present state, with what could not be read in `problems`."""
        found = overview.empty(self._plan)
        self._ask_ledger(found)
        now = self._plan.clock.monotonic()
        with_letters = now - self._letters_at >= LETTERS_EVERY
        for broker, mine in by_broker(self._plan.consumers).items():
            self._ask_broker(broker, mine, found, letters=with_letters)
        if with_letters:
            self._letters_at = now
            self._letters = {row["consumer"]: row["dead_letters"] for row in found.consumers}
        else:
            for row in found.consumers:
                row["dead_letters"] = self._letters.get(row["consumer"])
        self._ask_redis(found)
        return found

    def _ask_ledger(self, found: Overview) -> None:
        try:
            if not self._proven:
                databases.prove(self._plan)
                self._proven = True
                found.at = self._plan.clock.now()  # by the database's clock from now on
            overview.ask_ledger(self._plan, found, recently=RECENTLY)
        except (SQLAlchemyError, InfrastructureError, LedgerError) as error:
            found.problems.append(f"database: {self._plan.redact(describe(error))}")

    def _ask_broker(
        self, broker: str, mine: Sequence[ConsumerPlan], found: Overview, *, letters: bool
    ) -> None:
        try:
            adapter = self._adapters.get(broker) or self._opened(broker)
            overview.ask_broker(self._plan, adapter, mine, found, letters=letters, tell=found.problems.append)
        except BrokerError as error:
            found.problems.append(f"broker {broker}: {error}")
            self._drop(broker)

    def _opened(self, broker: str) -> Adapter:
        # An adapter is opened once; another connection needs another one.
        fresh = self._load()
        for engine in fresh.engines:
            engine.dispose()
        adapter = fresh.adapters[broker]
        self._adapters[broker] = adapter
        adapter.prepare([consumer.subscription for consumer in fresh.consumers if consumer.broker == broker])
        return adapter

    def _ask_redis(self, found: Overview) -> None:
        if self._plan.redis is None:
            return
        try:
            probe.prove(self._plan.redis)
            found.redis = "answers"
        except (InfrastructureError, RedisRefused) as error:
            found.redis = "does not answer"
            found.problems.append(f"Redis: {error}")

    def _drop(self, broker: str) -> None:
        adapter = self._adapters.pop(broker, None)
        if adapter is not None:
            with suppress(Exception):
                adapter.close(grace=CLOSE_WITHIN)

    def close(self) -> None:
        """Close every connection."""
        for broker in list(self._adapters):
            self._drop(broker)
        if self._plan.redis is not None:
            self._plan.redis.close()
        for engine in self._plan.engines:
            engine.dispose()
