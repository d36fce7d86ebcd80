"""Lists, replays and removes dead letters: each is read by a channel that requeues the letters that it does not remove.

Looking takes messages without acknowledging them; giving them back, or the loss of the connection, puts them back
where they were. One letter is in memory at a time, however many lie there.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from oncemq.contracts.adapter import DeadLetter
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq_adapters.rabbitmq.messages.forwarding import opened, replayed
from oncemq_adapters.rabbitmq.messages.properties import as_text, read_any
from oncemq_adapters.rabbitmq.messages.raw_properties import raw_of
from oncemq_adapters.rabbitmq.publishing.confirms import Publication
from oncemq_adapters.rabbitmq.topology.names import Place

BACK_TRIES = 100
BACK_PAUSE = 0.02
"""Seconds; 2 s in all for what was looked at to lie in the queue again."""

Publish = Callable[[Sequence[Publication]], Sequence[Exception | None]]


def browse(connection: Any, place: Place, limit: int) -> Iterator[DeadLetter]:
    """Yield up to `limit` dead letters, oldest first; all of them stay.

    What has been yielded is held back from other readers until the iterator ends or is closed.
    """
    with _Look(connection, place.dead_queue, limit) as look:
        for _, properties, body in look:
            inner, original = opened(properties, body)
            message = _with_reason(
                read_any(place.topic.topic, original, inner, redelivered=False)[0], properties
            )
            yield DeadLetter(_id_of(properties, body), message, _dead_at(message.headers))


def replay(connection: Any, place: Place, ids: Sequence[str], publish: Publish, username: str) -> int:
    """Send dead letters to the group's queue and remove each once that is confirmed; return how many.

    Raises:
        BrokerError: one could not be sent; it stays, as do those after it.
    """

    def send(properties: Any, body: bytes) -> None:
        inner, original = opened(properties, body)
        key = as_text((properties.headers or {}).get(names.KEY, ""))
        copy = Publication("", place.queue_of(key), *replayed(raw_of(inner), original, username))
        error = publish([copy])[0]
        if error is not None:
            raise error

    return _take(connection, place, ids, send)


def purge(connection: Any, place: Place, ids: Sequence[str]) -> int:
    """Remove dead letters for ever; return how many."""
    return _take(connection, place, ids, lambda *_: None)


def _take(connection: Any, place: Place, ids: Sequence[str], use: Callable[[Any, bytes], None]) -> int:
    """Remove the wanted ones, each after it has been used; an id that is named twice means two letters."""
    wanted = Counter(ids)
    left = wanted.total()
    with _Look(connection, place.dead_queue) as look:
        for tag, properties, body in look:
            found = _id_of(properties, body)
            if wanted[found] > 0:
                use(properties, body)
                look.remove(tag)
                wanted[found] -= 1
                left -= 1
                if not left:
                    break
    return look.removed


class _Look:
    """Yields tag, properties and body of a queue's present messages, and requeues those not removed.

    Args:
        connection: pika's, of the calling thread.
        queue: what to look into.
        limit: how many at most; None = all that lie there at the start.
    """

    def __init__(self, connection: Any, queue: str, limit: int | None = None) -> None:
        self.removed = 0
        self._connection = connection
        self._channel = connection.channel()
        self._queue = queue
        self._waiting = self._count()
        self._most = self._waiting if limit is None else min(self._waiting, limit)
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._channel.is_open:
            return  # the broker has put everything back
        if self._taken > self.removed:
            # 0 means all that is still held: a tag that was acknowledged is unknown to the broker.
            self._channel.basic_nack(0, multiple=True, requeue=True)
            self._wait_until_back()
        self._channel.close()

    def __iter__(self) -> Iterator[tuple[int, Any, bytes]]:
        for _ in range(self._most):
            method, properties, body = self._channel.basic_get(self._queue)
            if method is None:
                return
            self._taken += 1
            yield method.delivery_tag, properties, body

    def remove(self, tag: int) -> None:
        """Take one out for ever."""
        self._channel.basic_ack(tag)
        self.removed += 1

    def _count(self) -> int:
        return int(self._channel.queue_declare(self._queue, passive=True).method.message_count)

    def _wait_until_back(self) -> None:
        """Wait for the requeue, which the broker does not confirm; the next reader would find the queue empty."""
        for _ in range(BACK_TRIES):
            if self._count() >= self._waiting - self.removed:
                return
            self._connection.sleep(BACK_PAUSE)


def _id_of(properties: Any, body: bytes) -> str:
    """Return the id that we gave it, or one made of its content if another client put it there."""
    own = (properties.headers or {}).get(names.DEAD_ID)
    if isinstance(own, str) and own:
        return own
    digest = hashlib.sha256(body)
    digest.update(b"\0" + raw_of(properties))
    return f"content-{digest.hexdigest()[:24]}"


def _dead_at(headers: Any) -> datetime | None:
    return names.time_of(headers, names.DEAD_AT) or names.time_of(headers, names.LAST_FAILED_AT)


def _with_reason(message: Message, properties: Any) -> Message:
    """Say the broker's reason where it was the broker that put the message here."""
    cause = (properties.headers or {}).get("x-first-death-reason")
    if names.REASON in message.headers or cause is None:
        return message
    return replace(message, headers={**message.headers, names.REASON: f"rabbitmq-{as_text(cause)}"})
