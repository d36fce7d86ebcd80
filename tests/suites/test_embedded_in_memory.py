"""The embedded broker in memory passes the parts of the adapter suite that need neither file nor second process."""

from uuid import uuid4

import pytest

from oncemq.testing.adapter_suite import AdapterHarness
from oncemq.testing.adapter_suite.dead_letters import DeadLetters
from oncemq.testing.adapter_suite.delivering import Delivering
from oncemq.testing.adapter_suite.publishing import Publishing
from oncemq.testing.adapter_suite.retrying import Retrying
from oncemq.testing.adapter_suite.settling import Settling
from support.brokers.in_memory import InMemoryHarness


class TestEmbeddedInMemory(Delivering, Settling, Retrying, DeadLetters, Publishing):
    """In memory, as tests and first steps use it."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """Return a broker of a name that no one else uses."""
        return InMemoryHarness(uuid4().hex)
