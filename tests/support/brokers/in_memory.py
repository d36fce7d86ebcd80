"""The embedded broker in memory under test: it has no server, and nothing to take away."""

from oncemq.contracts.adapter import Adapter
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq_adapters.embedded.adapter import InMemoryAdapter


class InMemoryHarness(AdapterHarness):
    """A broker under a name of its own."""

    adapter_class = InMemoryAdapter
    silence = 0.2

    def __init__(self, name: str) -> None:
        self.url = f"embedded://{name}"

    def unroutable(self) -> Topic:
        """Return a name that no topic can have."""
        return Topic("", {})

    def unreachable(self) -> Adapter:
        """Memory is always there."""
        raise NotImplementedError

    def unwelcome(self) -> Adapter:
        """Memory refuses no one."""
        raise NotImplementedError

    def stop(self) -> None:
        """Memory cannot be taken away."""
        raise NotImplementedError

    def start(self) -> None:
        """Memory is always there."""
        raise NotImplementedError

    def cut(self) -> None:
        """Nothing lies between us and our memory."""
        raise NotImplementedError
