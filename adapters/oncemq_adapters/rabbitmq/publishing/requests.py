"""Receives the answers of requests in a queue of this process, which outlives its connections and the broker's restarts."""

import uuid
from concurrent.futures import Future
from datetime import timedelta
from threading import Event, Lock
from typing import Any, Final
from weakref import WeakValueDictionary

from oncemq.contracts.requests import Answer
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq.message.headers import FAILED
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.messages.raw_properties import fault_of
from oncemq_adapters.rabbitmq.publishing.answers import OUR_REPLIES

KEPT: Final = timedelta(minutes=5)
"""How long the broker keeps the queue of a process that has died, or has no connection."""

_AGAIN: Final = 1.0
"""Seconds until a queue that was refused is declared again, under another name."""

_ADVICE = "the account needs the rights to configure and to read it"


class Requests:
    """Connects on first use; answers find their request by its correlation id.

    Args:
        address: where to connect.
        app: the app's name.
        kept: how long the broker keeps the queue without a connection.
    """

    def __init__(self, address: Address, app: str, kept: timedelta = KEPT) -> None:
        self._app = app
        self._kept = kept
        self._queue = self._new_name()
        self._link = Link(address, f"{app} (answers)", self)
        self._known = Event()
        self._refusal: BrokerError | None = None
        self._error: BrokerError | None = None
        self._connection: Any = None
        self._channel: Any = None
        self._lock = Lock()
        # Weak: a request that nothing waits for any more needs no answer.
        self._waiting: WeakValueDictionary[str, Future[Answer]] = WeakValueDictionary()

    def expect(self, within: float) -> tuple[str, str, "Future[Answer]"]:
        """Return the queue for an answer, its correlation id, and where it arrives; waits until the queue is there.

        Args:
            within: seconds.

        Raises:
            BrokerError: it is refused, or there is no connection in time; nothing was published.
        """
        self._link.start()
        if not self._known.wait(within):
            raise self._error or BrokerUnavailable("no connection to RabbitMQ for answers in time")
        if self._refusal is not None:
            raise self._refusal
        correlation, answer = uuid.uuid4().hex, Future[Answer]()
        with self._lock:
            self._waiting[correlation] = answer
        return self._queue, correlation, answer

    def stop(self, timeout: timedelta) -> None:
        """Delete the queue and disconnect; who still waits gets an error."""
        self._link.post(self._delete)
        self._link.stop(timeout)
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(
                    BrokerUnavailable("the publisher was closed; the request may still take effect")
                )

    def before_connecting(self) -> None:
        """Need nothing."""

    def connected(self, connection: Any) -> None:
        """Open the channel."""
        self._connection = connection
        connection.channel(on_open_callback=self._opened)

    def disconnected(self, error: BrokerError) -> None:
        """Let new requests wait for the next connection, unless the broker refuses us."""
        self._channel, self._error = None, error
        self._refuse(error) if isinstance(error, BrokerRefused) else self._known.clear()

    def _new_name(self) -> str:
        # No message ever needs more: the name has 255 bytes at most.
        return f"{OUR_REPLIES}{self._app[:100]}.{uuid.uuid4().hex}"

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._closed)
        channel.add_on_cancel_callback(lambda _: self._declare(channel))
        self._declare(channel)

    def _declare(self, channel: Any) -> None:
        """Declare the queue and read it: also one that was deleted behind our back, under the same name."""
        arguments = {"x-queue-type": "classic", "x-expires": int(self._kept.total_seconds() * 1000)}

        def declared(_: Any) -> None:
            channel.basic_consume(self._queue, self._arrived, callback=lambda _: self._ready(channel))

        channel.queue_declare(self._queue, durable=True, arguments=arguments, callback=declared)

    def _ready(self, channel: Any) -> None:
        self._channel, self._refusal, self._error = channel, None, None
        self._known.set()

    def _closed(self, _: Any, reason: Any) -> None:
        self._channel = None
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        error = faults.declaring(reason, "queue", self._queue, _ADVICE)
        if isinstance(error, BrokerRefused):
            # Such as one on a node that is down: another one is there. Who waits asks again.
            self._queue = self._new_name()
            self._refuse(error)
        else:
            self._known.clear()
        self._link.later(_AGAIN, lambda: self._reopen(connection))

    def _reopen(self, connection: Any) -> None:
        if connection is self._connection and connection.is_open:
            connection.channel(on_open_callback=self._opened)

    def _refuse(self, error: BrokerError) -> None:
        self._refusal = error
        self._known.set()

    def _arrived(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Hand an answer over. It is acknowledged, so that none is lost with a connection that looks alive."""
        channel.basic_ack(method.delivery_tag)
        if fault_of(properties) is not None:
            return
        with self._lock:
            answer = self._waiting.pop(properties.correlation_id or "", None)
        if answer is not None and answer.set_running_or_notify_cancel():
            answer.set_result(Answer(body, failed=FAILED in (properties.headers or {})))

    def _delete(self) -> None:
        if self._channel is not None and self._channel.is_open:
            self._channel.queue_delete(self._queue)
