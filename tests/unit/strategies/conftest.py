"""Fixtures of the strategies' tests."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.strategy import Scope
from oncemq.testing.scopes import scope_for
from oncemq.testing.strategy_suite.bench import Bench
from oncemq.testing.strategy_suite.chain_spec import ChainSpec
from support.database.with_ledger import KINDS, url_with_ledger

MakeBench = Callable[..., Bench]


@pytest.fixture
def scope() -> Scope:
    """Return what a strategy is built with where no database is at hand."""
    return scope_for("shop.points", dialect="sqlite")


@pytest.fixture
def facts() -> Callable[..., ConsumerFacts]:
    """Return a function that makes the facts of a sound consumer, with exceptions."""

    def make(**exceptions: Any) -> ConsumerFacts:
        sound = {
            "app": "shop",
            "name": "points",
            "topic": "order.paid",
            "group": "loyalty",
            "effects": Effects.DATABASE,
            "broker": "main",
            "strategies": ("unique_key",),
            "identity": (),
            "has_version": False,
            "keep": timedelta(days=7),
            "retry_horizon": timedelta(hours=1),
            "attempts": 6,
            "is_async": False,
            "dialect": "sqlite",
            "workers": 1,
            "in_flight": 1000,
            "unit_time": timedelta(milliseconds=50),
            "soft_limit": None,
            "hard_limit": None,
        }
        return ConsumerFacts(**{**sound, **exceptions})  # type: ignore[arg-type]

    return make


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database with the ledger's tables, which no test here makes for its own sake."""
    return url_with_ledger(request)


@pytest.fixture
def make_bench(database_url: str) -> Iterator[MakeBench]:
    """Lend benches for one strategy with options, on each kind of database."""
    benches: list[Bench] = []

    def make(name: str, options: Mapping[str, Any], **more: Any) -> Bench:
        benches.append(Bench(database_url, ChainSpec([(name, options)]), f"suite.c{uuid4().hex[:8]}", **more))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
