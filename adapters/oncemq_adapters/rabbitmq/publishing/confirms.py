"""One publishing channel: many messages in flight, each answered by the broker's confirmation or its return."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from threading import Event
from typing import Any

from pika.spec import Basic

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Unroutable
from oncemq_adapters.rabbitmq.connection import errors as faults


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish.

    Args:
        exchange: empty for straight to the queue `routing_key`.
        routing_key: as AMQP says.
        properties: pika's.
        body: the bytes.
        declare: arguments of the queue `routing_key`, if it is made on first use; None if it exists.
    """

    exchange: str
    routing_key: str
    properties: Any
    body: bytes
    declare: Mapping[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Publications with a waiting caller; `errors[i]` is None when the broker has the i-th.

    Args:
        publications: in order.
    """

    publications: Sequence[Publication]
    errors: list[BrokerError | None] = field(init=False)
    done: Event = field(default_factory=Event)
    open: int = field(init=False)
    _unknown: BrokerError = field(init=False)

    def __post_init__(self) -> None:
        self._unknown = faults.Unconfirmed(
            "RabbitMQ did not confirm the message in time; it may or may not have been stored"
        )
        self.errors = [self._unknown] * len(self.publications)
        self.open = len(self.publications)
        if not self.open:
            self.done.set()

    def answer(self, index: int, error: BrokerError | None) -> None:
        """Fix what became of one publication."""
        self.errors[index] = error
        self.open -= 1
        if self.open == 0:
            self.done.set()

    def explain(self, why: str) -> None:
        """Say why those that have not been answered were not."""
        error = BrokerUnavailable(
            f"RabbitMQ did not confirm the message in time: {why}; it may or may not have been stored"
        )
        self.errors = [error if current is self._unknown else current for current in self.errors]

    def fail(self, error: BrokerError) -> None:
        """Fail all; nothing of it has been sent."""
        self.errors = [error] * len(self.publications)
        self.done.set()


@dataclass(slots=True, eq=False)
class _Pending:
    batch: Batch
    index: int
    error: BrokerError | None = None

    @property
    def publication(self) -> Publication:
        return self.batch.publications[self.index]


class ConfirmChannel:
    """A channel in confirm mode; every call comes from the link's thread.

    Args:
        ready: set while it can be used.
    """

    def __init__(self, ready: Event) -> None:
        self._ready = ready
        self._connection: Any = None
        self._channel: Any = None
        self._number = 0
        self._pending: dict[int, _Pending] = {}
        self._declared: set[str] = set()

    def start(self, connection: Any) -> None:
        """Open a channel on a new connection."""
        self._connection = connection
        connection.channel(on_open_callback=self._opened)

    def send(self, batch: Batch) -> None:
        """Send a whole batch without waiting in between."""
        channel = self._channel
        if channel is None or not channel.is_open:
            batch.fail(BrokerUnavailable("the publishing channel to RabbitMQ was lost just now"))
            return
        with self._connection.written_together():
            for index, publication in enumerate(batch.publications):
                try:
                    self._publish(channel, batch, index, publication)
                except Exception as error:
                    # Such as a header that AMQP cannot carry; nothing of it was sent, and it has no number.
                    batch.answer(index, BrokerRefused(f"the message cannot be sent through AMQP: {error!r}"))

    def lose(
        self, error: BrokerError, also: Callable[[Publication], BrokerError | None] = lambda _: None
    ) -> None:
        """Fail whatever has not been confirmed; `also` may know more about one publication."""
        self._ready.clear()
        self._channel = None
        self._declared.clear()
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            entry.batch.answer(entry.index, also(entry.publication) or error)

    def _publish(self, channel: Any, batch: Batch, index: int, publication: Publication) -> None:
        self._refuse_large(publication.properties)
        queue = publication.routing_key
        if publication.declare is not None and queue not in self._declared:
            # Without waiting: the broker works off one channel in order.
            channel.queue_declare(queue, durable=True, arguments=dict(publication.declare))
            self._declared.add(queue)
        channel.basic_publish(
            publication.exchange, queue, publication.body, publication.properties, mandatory=True
        )
        self._number += 1
        self._pending[self._number] = _Pending(batch, index)

    def _refuse_large(self, properties: Any) -> None:
        """Refuse what the broker would end the connection for: a header frame cannot be divided."""
        most = self._connection.params.frame_max - _AROUND_PROPERTIES
        if most > 0 and (size := _size(properties, most)) > most:
            raise ValueError(f"its headers have {size:,} bytes, and a frame has room for {most:,}")

    def _opened(self, channel: Any) -> None:
        self._number = 0
        channel.add_on_close_callback(self._closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._usable(channel))

    def _usable(self, channel: Any) -> None:
        self._channel = channel
        self._ready.set()

    def _closed(self, _: Any, reason: BaseException) -> None:
        code = getattr(reason, "reply_code", 0)
        # What else was in flight goes down with the channel, and may well be taken next time.
        self.lose(
            _refusal(reason, code) if code in _FINAL else faults.lost(reason),
            lambda sent: _no_exchange(sent, reason) if code == faults.MISSING else None,
        )
        if self._connection.is_open:
            self.start(self._connection)

    def _returned(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """Note a message that no queue took; its confirmation follows and is positive all the same."""
        for entry in self._pending.values():
            sent = entry.publication
            if (
                entry.error is None
                and sent.routing_key == method.routing_key
                and sent.exchange == method.exchange
                and sent.properties.message_id == properties.message_id
                and sent.body == body
            ):
                self._declared.discard(method.routing_key)
                entry.error = _unroutable(sent, method)
                return

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        refused = isinstance(method, Basic.Nack)
        numbers = [method.delivery_tag]
        if method.multiple:
            # In order of sending, so that thousands in flight are not looked through for each confirmation.
            numbers = list(takewhile(method.delivery_tag.__ge__, self._pending))
        for number in numbers:
            entry = self._pending.pop(number, None)
            if entry is not None:
                entry.batch.answer(entry.index, _negative() if refused else entry.error)


def _size(properties: Any, most: int) -> int:
    """Return the bytes of a message's properties; 0 where they are clearly fewer than `most`."""
    raw = getattr(properties, "raw", None)
    if raw is not None:
        return len(raw)
    headers = properties.headers or {}
    if (
        sum(len(name) + len(str(value)) for name, value in headers.items())
        < most // _LONGEST_CHARACTER - _OTHERS
    ):
        return 0
    return sum(map(len, properties.encode()))


_LONGEST_CHARACTER = 4
_OTHERS = 4096
"""Bytes that all properties but the headers take at most: a dozen of 255 bytes."""
_AROUND_PROPERTIES = 12
"""Bytes before the properties in a header frame. RabbitMQ lets these and the properties have as many as a whole frame (its
FRAME_SIZE_FUDGE): what it took with one byte less must find its way back from the dead letters."""
_FINAL = frozenset({faults.MISSING, faults.DIFFERENT, faults.FORBIDDEN})


def _refusal(reason: Any, code: int) -> BrokerError:
    kind = faults.ClosedFor if code == faults.DIFFERENT else BrokerRefused
    return kind(f"RabbitMQ refused to take messages: {reason.reply_text} ({code})")


def _no_exchange(sent: Publication, reason: Any) -> BrokerError | None:
    if not sent.exchange or f"'{sent.exchange}'" not in str(reason.reply_text):
        return None
    return Unroutable(
        f"there is no exchange {sent.exchange!r} ({reason.reply_text}); declare it, or start a consumer of the topic once"
    )


def _negative() -> BrokerError:
    return faults.NotTaken(
        "RabbitMQ could not take the message now (negative confirmation); the queue may be full"
    )


def _unroutable(sent: Publication, method: Any) -> BrokerError:
    if sent.exchange:
        return Unroutable(
            f"no queue takes messages of exchange {sent.exchange!r} with routing key {sent.routing_key!r} "
            f"({method.reply_text}); start a consumer of the topic once, or bind a queue"
        )
    return Unroutable(f"the queue {sent.routing_key!r} does not exist ({method.reply_text}); declare it")
