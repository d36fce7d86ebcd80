"""The test kit's broker in memory is an ordinary adapter: it passes the parts of the adapter suite that need no server."""

import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, Sink, Subscription
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq.testing.adapter_suite.dead_letters import DeadLetters
from oncemq.testing.adapter_suite.delivering import Delivering
from oncemq.testing.adapter_suite.publishing import Publishing
from oncemq.testing.adapter_suite.retrying import Retrying
from oncemq.testing.adapter_suite.settling import Settling
from oncemq.testing.kit.memory_broker import MemoryAdapter, MemoryBroker
from support.brokers.in_memory import InMemoryHarness


class _Pumped(MemoryAdapter):
    """Delivers from a thread, as the suite expects of a broker; in the kit the test's own thread does it."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker, "under-test")
        self._closing = threading.Event()
        self._pump: threading.Thread | None = None

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Start the thread as well."""
        super().open(subscriptions, sink)
        self._closing.clear()
        self._pump = threading.Thread(target=self._run, daemon=True)
        self._pump.start()

    def close(self, *, grace: timedelta) -> None:
        """End the thread first."""
        self._closing.set()
        if self._pump is not None:
            self._pump.join()
            self._pump = None
        super().close(grace=grace)

    def _run(self) -> None:
        while not self._closing.wait(0.002):
            self.deliver()


class _Harness(InMemoryHarness):
    """One broker, to which all adapters of a test connect."""

    adapter_class = MemoryAdapter

    def __init__(self) -> None:
        super().__init__("memory")
        self._broker = MemoryBroker(SystemClock())

    def make_adapter(self, **options: object) -> Adapter:
        """Return one more connection."""
        del options
        return _Pumped(self._broker)

    def unroutable(self) -> Topic:
        """Return a name that no topic can have."""
        return Topic("", {})


class TestMemoryBroker(Delivering, Settling, Retrying, DeadLetters, Publishing):
    """In memory, for tests of handlers."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """Return an empty broker."""
        return _Harness()
