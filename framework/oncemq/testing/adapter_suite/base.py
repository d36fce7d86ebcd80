"""Fixtures shared by all parts of the adapter suite."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from oncemq.testing.adapter_suite.harness import AdapterHarness


class SuitePart:
    """One part of the suite; the subclass in a backend's test file provides `harness`."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """Return the backend's harness; every backend overrides this."""
        raise NotImplementedError(
            "override the fixture `harness` in the class that derives from AdapterSuite"
        )

    @pytest.fixture
    def bench(self, harness: AdapterHarness) -> Iterator[Bench]:
        """Yield a bench and close everything on it afterwards."""
        bench = Bench(harness)
        yield bench
        bench.close_all()
