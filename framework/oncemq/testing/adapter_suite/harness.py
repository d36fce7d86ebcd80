"""Harness of a backend: everything that the adapter suite needs to know about it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope, Refused
from oncemq.contracts.capabilities import Capabilities
from oncemq.message.envelope import OutgoingMessage


class Topic(NamedTuple):
    """A topic of the backend: its name in the app and its broker options."""

    name: str
    options: Mapping[str, Any]


class AdapterHarness(ABC):
    """One backend under test: creates adapters, and stops, starts and disconnects its broker.

    Subclass it, set the attributes and implement the hooks. Every test asks for topics with new names, so one
    server can serve a whole run. A broker without a server does the equivalent: `stop` may move its file
    away, `cut` may replace it.

    Attributes:
        adapter_class: the adapter.
        url: of the broker, through the connection that `cut` breaks.
        options: the broker's options as an app would declare them.
        patience: seconds to wait for an expected event.
        silence: seconds after which an event will no longer happen.
        secret: a text that must never appear in an error, a `repr` or a health row; empty = none.
        address: named by the error of `unreachable`, such as `host:port`.
    """

    adapter_class: type[Adapter]
    url: str
    options: Mapping[str, Any] = {}
    patience: float = 20.0
    silence: float = 0.5
    secret: str = ""
    address: str = ""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities that the adapter claims."""
        return self.adapter_class.capabilities

    def make_adapter(self, **options: Any) -> Adapter:
        """Return a new adapter that is not open; `options` are added to the declared ones."""
        scope = AdapterScope(app="adapter-suite", broker="under-test", clock=SystemClock())
        return self.adapter_class.build(self.url, {**self.options, **options}, scope)

    def topic(self, name: str) -> Topic:
        """Return an unused topic; override where a topic needs options or must be created first."""
        return Topic(f"{name}-{uuid4().hex[:8]}", {})

    def send_hostile(self, topic: Topic, publisher: Adapter) -> Sequence[bytes]:
        """Publish malformed messages of a careless or hostile producer; returns the bodies, in order.

        Override it to send messages that only the broker's own protocol allows, such as headers of every type that it has,
        sizes at its limits, and history that only brokers or groups write.
        """
        odd = {
            "oncemq-attempt": "99",
            "oncemq-published-at": "9999-12-31T23:59:59+00:00",
            "x\u00e9": "\n\u2028",
        }
        answers = publisher.publish(topic.name, topic.options, [OutgoingMessage(b"hostile", odd, "one")])
        failed = [answer.error for answer in answers if isinstance(answer, Refused)]
        if failed:
            raise failed[0]
        return [b"hostile"]

    def leasing_adapter(self, lease: timedelta) -> Adapter:
        """Return an adapter whose deliveries expire after `lease`; called only where leases are claimed."""
        raise NotImplementedError

    @abstractmethod
    def unroutable(self) -> Topic:
        """Return a topic to which publishing must be refused, because it has no destination."""

    @abstractmethod
    def unreachable(self) -> Adapter:
        """Return an adapter whose broker does not exist; its error must name `address`."""

    @abstractmethod
    def unwelcome(self) -> Adapter:
        """Return an adapter that the broker must refuse: a wrong password, a file of another kind."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker abruptly; confirmed messages are kept."""

    @abstractmethod
    def start(self) -> None:
        """Restart the broker; returns when it answers."""

    @abstractmethod
    def cut(self) -> None:
        """Break every connection at once; new ones work."""
