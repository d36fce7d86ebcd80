"""One thread for each subscription: requests messages, detects outages, and replaces a client that does not recover.

What was received stays ours meanwhile: a lease is independent of the connection, and can be settled on the next one.
"""

import time
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Any

from oncemq.contracts.adapter import ConsumerHealth
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.grpc.client import Receiver, ask_route
from oncemq_adapters.rocketmq.grpc.copies import read_taken
from oncemq_adapters.rocketmq.grpc.errors import SETTINGS_MISSING, ProxyUnable, surfaced
from oncemq_adapters.rocketmq.grpc.held_leases import Lease, Shelf
from oncemq_adapters.rocketmq.grpc.producer import ANEW_AFTER
from oncemq_adapters.rocketmq.grpc.settings import Settings
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic

AT_ONCE = 32
"""The most messages that a broker returns for one request."""

_LOOK_EVERY = 2.0
"""Seconds between questions that only show whether the proxy is there, while there is no room for messages."""

_PAUSE = 0.2
LetGo = Callable[[Shelf, Sequence[Delivery]], None]


class Receiving:
    """Fills a shelf from a topic.

    Args:
        settings: where the proxy is.
        topic: what to receive.
        shelf: where it goes.
        let_go: gives back what came too late to be used.
        unblock: called when the proxy failed at a message and delivered none; None = nothing can be done.
    """

    def __init__(
        self,
        settings: Settings,
        topic: ProxiedTopic,
        shelf: Shelf,
        let_go: LetGo,
        unblock: Callable[[], object] | None = None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self.shelf = shelf
        self._let_go = let_go
        self._unblock = unblock
        self._lock = Lock()
        self._client: Receiver | None = None
        self._trouble = "it has not begun"
        self._failing_since: float | None = None
        self._looked = 0.0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"oncemq-grpc-{shelf.consumer}", daemon=True)

    @property
    def client(self) -> Receiver:
        """The living client.

        Raises:
            BrokerUnavailable: there is none now.
        """
        client = self._client
        if client is None:
            raise BrokerUnavailable(f"RocketMQ's proxy at {self._settings.shown} is not connected")
        return client

    def start(self) -> None:
        """Connect and begin.

        Raises:
            BrokerError: that is not possible.
        """
        self._renew()
        self._trouble = ""
        self._thread.start()

    def health(self) -> ConsumerHealth:
        """Return whether the proxy gives us messages."""
        if self._stopping.is_set():
            return ConsumerHealth(self.shelf.consumer, subscribed=False, detail="closed")
        return ConsumerHealth(self.shelf.consumer, subscribed=not self._trouble, detail=self._trouble)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopping.set()

    def finish(self, timeout: float) -> Sequence[Delivery]:
        """Wait only for the last answer; returns the held deliveries."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return self.shelf.close()

    def disconnect(self) -> None:
        """Leave the group."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.shutdown()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            room = self.shelf.wait_for_room(AT_ONCE, self._stopping.is_set)
            try:
                if room > 0:
                    self._receive(room)
                else:
                    self._look()
            except Exception as error:
                if self._stopping.is_set():
                    return
                self._failed(surfaced(error, self._settings.shown))

    def _receive(self, room: int) -> None:
        if self._client is None:
            self._renew()
        taken = self.client.take(room)
        self._failing_since, self._trouble = None, ""
        messages = []
        for raw, endpoints in taken:
            packed = raw.body
            message = read_taken(self._topic.topic, raw, fifo=self._topic.fifo)
            system = raw.system_properties
            lease = Lease(self.shelf, system.message_id, system.receipt_handle, endpoints, raw)
            lease.unpacked = 0 if raw.body is packed else len(raw.body)
            messages.append((message, lease))
        late = self.shelf.offer(messages, self._settings.lease)
        if late:
            self._let_go(self.shelf, late)

    def _look(self) -> None:
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        if self._client is None:
            self._renew()
        ask_route(self.client, self._topic.name)
        self._failing_since, self._trouble = None, ""

    def _failed(self, error: BrokerError) -> None:
        now = time.monotonic()
        first = self._failing_since is None
        if first:
            self._failing_since = now
        elif now - (self._failing_since or now) > ANEW_AFTER:
            self._failing_since = now
            self._drop()
        if getattr(error, "code", 0) != SETTINGS_MISSING or not first:
            self._trouble = str(error)
        if self._unblock is not None and isinstance(error, ProxyUnable) and error.about_a_message:
            try:
                self._unblock()
            except BrokerError as failure:
                self._trouble = f"{error}; over the remoting protocol: {failure}"
        self._stopping.wait(_PAUSE)

    def _drop(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.shutdown()

    def _renew(self) -> None:
        try:
            client: Any = Receiver(self._settings, self.shelf.group, self._topic)
            client.start()
        except Exception as error:
            raise surfaced(error, self._settings.shown) from error
        with self._lock:
            if not self._stopping.is_set():
                self._client = client
                return
        client.shutdown()
