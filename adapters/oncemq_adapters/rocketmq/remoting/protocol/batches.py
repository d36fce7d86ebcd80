"""Several small messages of one queue in one request, as RocketMQ's own batches are."""

import struct
from collections.abc import Iterable, Iterator, Sequence

from oncemq_adapters.rocketmq.properties import to_text
from oncemq_adapters.rocketmq.remoting.protocol.send_request import Outgoing

BATCH_BYTES = 256 * 1024
BATCH_MESSAGES = 128

_HEAD, _LENGTH = struct.Struct(">iiiii"), struct.Struct(">h")


def batch_body(messages: Iterable[Outgoing]) -> bytes:
    """Return the body of a request that stores these messages, each with properties of its own."""
    parts = []
    for message in messages:
        text = to_text(message.properties).encode()
        size = _HEAD.size + len(message.body) + _LENGTH.size + len(text)
        parts.append(_HEAD.pack(size, 0, 0, message.flag, len(message.body)) + message.body)
        parts.append(_LENGTH.pack(len(text)) + text)
    return b"".join(parts)


def parcels(
    group: Sequence[tuple[int, int]], messages: Sequence[Outgoing]
) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield (queue, indices) of what is sent together, each queue's in order."""
    open_ones: dict[tuple[str, int], list[int]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for at, queue in group:
        message = messages[at]
        key = message.topic, queue
        size = len(message.body) + len(to_text(message.properties))
        full = sizes.get(key, 0) + size > BATCH_BYTES or len(open_ones.get(key, ())) >= BATCH_MESSAGES
        if key in open_ones and (full or not message.plain):
            yield queue, open_ones.pop(key)
            sizes.pop(key)
        if not message.plain:
            yield queue, [at]
            continue
        open_ones.setdefault(key, []).append(at)
        sizes[key] = sizes.get(key, 0) + size
    for (_, queue), indices in open_ones.items():
        yield queue, indices
