"""The embedded broker passes the adapter suite."""

from pathlib import Path

import pytest

from oncemq.testing.adapter_suite import AdapterSuite
from support.brokers.embedded import EmbeddedHarness


class TestEmbeddedAdapter(AdapterSuite):
    """In a file, as apps use it."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> EmbeddedHarness:
        """Return a broker in a file of this test's own."""
        return EmbeddedHarness(tmp_path)
