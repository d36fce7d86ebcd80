"""Fixtures shared by all parts of the strategy suite."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from oncemq.testing.strategy_suite.bench import Bench
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

MakeBench = Callable[..., Bench]


class SuitePart:
    """One part of the suite; the subclass in a test file provides `chain` and `url`."""

    @pytest.fixture
    def chain(self) -> ChainSpec:
        """Return the chain under test; every subclass overrides this."""
        raise NotImplementedError("override the fixture `chain` in the class that derives from StrategySuite")

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of a database, which tests may share; every subclass overrides this."""
        raise NotImplementedError("override the fixture `url` in the class that derives from StrategySuite")

    @pytest.fixture
    def scope(self) -> str:
        """Return a ledger scope that no other test uses."""
        return f"suite.c{uuid4().hex[:12]}"

    @pytest.fixture
    def make_bench(self, chain: ChainSpec, url: str, scope: str) -> Iterator[MakeBench]:
        """Yield a factory of benches on one database, and close them afterwards."""
        benches: list[Bench] = []

        def make(**options: Any) -> Bench:
            benches.append(Bench(url, chain, scope, **options))
            return benches[-1]

        yield make
        for bench in benches:
            bench.close()

    @pytest.fixture
    def bench(self, make_bench: MakeBench) -> Bench:
        """Return one bench."""
        return make_bench()
