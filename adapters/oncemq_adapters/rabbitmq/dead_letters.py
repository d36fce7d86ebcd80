"""Lists, replays and removes dead letters: each is looked at by a channel that gives back what it does not remove.

Looking takes messages without acknowledging them; closing the channel puts them back where they were.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from oncemq.adapter import DeadLetter
from oncemq.message import headers as names
from oncemq_adapters.rabbitmq.confirms import Publication
from oncemq_adapters.rabbitmq.names import Place
from oncemq_adapters.rabbitmq.properties import as_text, for_replay, read_message

DEAD_ID = f"{names.PREFIX}dead-id"
DEAD_AT = f"{names.PREFIX}dead-at"

Publish = Callable[[Sequence[Publication]], Sequence[Exception | None]]


def browse(connection: Any, place: Place, limit: int) -> list[DeadLetter]:
    """Return up to `limit` dead letters, oldest first; all of them stay."""
    found = []
    with connection.channel() as channel:
        for _, properties, body in _walk(channel, place.dead_queue, limit):
            message = read_message(place.topic.topic, body, properties, redelivered=False)
            found.append(DeadLetter(_id_of(properties, body), message, _dead_at(message.headers)))
    return found


def replay(connection: Any, place: Place, ids: Sequence[str], publish: Publish, username: str) -> int:
    """Send dead letters to the group's queue and remove each once that is confirmed; return how many.

    Raises:
        BrokerError: one could not be sent; it stays, as do those after it.
    """
    wanted, done = set(ids), 0
    with connection.channel() as channel:
        for tag, properties, body in _walk(channel, place.dead_queue):
            if (found := _id_of(properties, body)) not in wanted:
                continue
            fresh = Publication("", place.queue, for_replay(properties, username), body)
            error = publish([fresh])[0]
            if error is not None:
                raise error
            channel.basic_ack(tag)
            done += 1
            wanted.discard(found)
            if not wanted:
                break
    return done


def purge(connection: Any, place: Place, ids: Sequence[str]) -> int:
    """Remove dead letters for ever; return how many."""
    wanted, done = set(ids), 0
    with connection.channel() as channel:
        for tag, properties, body in _walk(channel, place.dead_queue):
            if (found := _id_of(properties, body)) in wanted:
                channel.basic_ack(tag)
                done += 1
                wanted.discard(found)
            if not wanted:
                break
    return done


def _walk(channel: Any, queue: str, limit: int | None = None) -> Iterator[tuple[int, Any, bytes]]:
    """Yield tag, properties and body of what lies in a queue now; what arrives meanwhile is left out."""
    waiting = channel.queue_declare(queue, passive=True).method.message_count
    for _ in range(waiting if limit is None else min(waiting, limit)):
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return
        yield method.delivery_tag, properties, body


def _id_of(properties: Any, body: bytes) -> str:
    """Return the id that we gave it, or one made of its content if somebody else put it there."""
    own = (properties.headers or {}).get(DEAD_ID)
    if isinstance(own, str) and own:
        return own
    digest = hashlib.sha256(body)
    for part in (properties.message_id, properties.correlation_id, properties.timestamp, properties.headers):
        digest.update(b"\0" + as_text(part).encode(errors="replace"))
    return f"content-{digest.hexdigest()[:24]}"


def _dead_at(headers: Any) -> datetime | None:
    return names.time_of(headers, DEAD_AT) or names.time_of(headers, names.LAST_FAILED_AT)
