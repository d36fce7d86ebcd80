"""Random messages that brokers let through: every AMQP field type, every property of RocketMQ, every limit and one beside it."""

import gzip
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from support.hostile.amqp import MESSAGES, MOST_PROPERTIES, entry, headers_only, long_string, padded, table

FORGED = {
    "oncemq-attempt": "99",
    "oncemq-published-at": "9999-12-31T23:59:59+00:00",
    "oncemq-first-failed-at": "1970-01-02T00:00:00+00:00",
    "oncemq-waiting-since": "1970-01-02T00:00:00+00:00",
    "oncemq-reason": "crashed",
    "oncemq-origin-topic": "refunds",
    "oncemq-consumer": "refunds",
    "oncemq-tried": "no",
    "oncemq-sealed": "1",
    "oncemq-error-text": "\x1b[2J forged",
    "oncemq-dead-id": "same",
    "oncemq-ledger-id": "same",
}
"""What a producer may write of a past that its message does not have."""
TEXTS = (
    *("", " ", "a b", "\0", "\n", "\x1b[2J", "\u2028", "é", "\ue000", "😀", "\ufeff", "a\x01b\x02c"),
    *("%s{0}", "${jndi:ldap://nowhere.invalid}", "'; DROP TABLE oncemq_processed; --", "\u202egnp.exe"),
    *("x" * 255, "x" * 256, "é" * 128, "x" * 1000, "9" * 5000),
)
TAGS = ("oncemq-removed", "a", "a || b", "é", "*", "TagA", "x" * 100)
BODIES = (
    *(b"no JSON", b"\xff\xfe", b"\0", b"null", b"1", b"[]", b"{}", b'{"key": null}', b'{"key": true}'),
    *(b"[" * 5000, b'{"key": "\\ud800"}', b'{"key": "k", "id": 1e999}', b"x" * 200_000),
    *(b"oncemq-sealed 1\n{}\nx", b"oncemq-sealed 1\n[", b'["broker/0/1"]'),
)


class Odd(NamedTuple):
    """One message of a hostile or careless producer.

    Args:
        body: as it is sent.
        way: what else it says, in the broker's own terms; the sender knows what it means.
    """

    body: bytes
    way: Any


def odd_body(random: Random, number: int) -> bytes:
    """Return a body: half of them are read and fail in the handler, so that the rest of the message comes so far."""
    order = {"id": f"odd-{number}", "key": f"odd-key-{number % 7}", "bad": random.choice(["raise", "reject"])}
    if random.random() < 0.5:
        return json.dumps(order).encode()
    if random.random() < 0.2:
        return json.dumps({**order, "pad": "x" * random.choice([4090, 4096, 70_000, 200_000])}).encode()
    return random.choice(BODIES)


def odd_headers(random: Random) -> dict[str, str]:
    """Return headers of text."""
    found = {random.choice(TEXTS)[:200] or "n": random.choice(TEXTS) for _ in range(random.randrange(4))}
    forged = random.sample(sorted(FORGED), random.randrange(4))
    return {**found, **{name: FORGED[name] for name in forged}}


# AMQP


def amqp(random: Random, number: int) -> Odd:
    """Return a message for RabbitMQ; its way are the properties, byte by byte."""
    body = odd_body(random, number)
    if random.random() < 0.3:
        return Odd(body, random.choice(list(MESSAGES.values())))
    if random.random() < 0.1:
        return Odd(body, padded(MOST_PROPERTIES - random.choice([0, 1, 2, 100, 300, 700, 2500])))
    fields = [(_name(random), _value(random, 4)) for _ in range(random.randrange(6))]
    fields += [
        (name.encode(), long_string(b"S", FORGED[name].encode()))
        for name in random.sample(sorted(FORGED), random.randrange(3))
    ]
    if random.random() < 0.2:
        death = long_string(b"F", entry(b"count", b"l" + b"\x7f" * 8) + entry(b"reason", _text(b"rejected")))
        fields.append((b"x-death", long_string(b"A", death)))
    if random.random() < 0.2:
        fields.append((b"x-first-death-reason", _value(random, 1)))
    parts = {0x2000: table(fields)} if fields else {}
    for flag in (0x8000, 0x4000, 0x0400, 0x0200, 0x0080, 0x0020, 0x0008):
        # Content type, encoding, correlation id, reply to, message id, type and app id.
        if random.random() < 0.25:
            short = bytes(random.randrange(256) for _ in range(random.choice([0, 1, 3, 255])))
            parts[flag] = bytes((len(short),)) + short
    if random.random() < 0.3:
        parts[0x1000] = bytes((random.choice([1, 2]),))
    if random.random() < 0.3:
        parts[0x0800] = bytes((random.randrange(256),))
    if random.random() < 0.3:
        parts[0x0040] = struct.pack(">Q", random.choice([0, 1, 1_763_800_000, 1_763_800_000_000, 2**63]))
    flags = sum(parts)
    return Odd(body, struct.pack(">H", flags) + b"".join(parts[flag] for flag in sorted(parts, reverse=True)))


def _name(random: Random) -> bytes:
    if random.random() < 0.5:
        return random.choice([b"tenant", b"n" * 255, b"", b"content-type", b"oncemq-x", b"x-y", b"\xff\xfe"])
    return bytes(random.randrange(256) for _ in range(random.randrange(20)))


def _text(raw: bytes) -> bytes:
    return long_string(b"S", raw)


def _value(random: Random, depth: int) -> bytes:
    kind = random.choice(b"tbBsuIilfdDTVSxAF" if depth else b"tbBsuIilfdDTVSx")
    sizes = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "D": 5, "T": 8, "V": 0}
    letter = chr(kind)
    if letter in sizes:
        return bytes((kind,)) + random.randbytes(sizes[letter])
    if letter in "fd":
        # RabbitMQ ends the connection of a producer who sends what is no finite number.
        number = random.choice([0.1, -0.0, 5e-38, 1e38 if letter == "f" else 1e300])
        return bytes((kind,)) + struct.pack(f">{letter}", number)
    if letter in "Sx":
        return long_string(bytes((kind,)), random.randbytes(random.choice([0, 1, 20, 300])))
    values = [_value(random, depth - 1) for _ in range(random.randrange(4))]
    if letter == "A":
        return long_string(b"A", b"".join(values))
    return long_string(b"F", b"".join(entry(_name(random), value) for value in values))


# RocketMQ


class Rocket(NamedTuple):
    """What a message for RocketMQ says besides its body.

    Args:
        properties: as sent.
        system: flags that say how the body is packed.
        flag: the sender's own.
    """

    properties: Mapping[str, str]
    system: int
    flag: int


LONGEST = 32_767
_PACKED = {"zlib": 0x301, "zlib of old clients": 0x001, "LZ4": 0x101, "ZSTD": 0x201, "unknown": 0x701}
_SYSTEM = {
    "KEYS": ("a", "a b", " ", "é", "k" * 200),
    "TAGS": TAGS,
    "RETRY_TOPIC": ("refunds", "%RETRY%other", ""),
    "DLQ_ORIGIN_TOPIC": ("refunds",),
    "DLQ_ORIGIN_MESSAGE_ID": ("x",),
    "ORIGIN_MESSAGE_ID": ("other",),
    "RECONSUME_TIME": ("99", "-1", "x"),
    "MAX_RECONSUME_TIMES": ("0", "-1", "x"),
    "MIN_OFFSET": ("0",),
    "MAX_OFFSET": ("x",),
    "CONSUME_START_TIME": ("0", "x"),
    "TRACE_ON": ("true",),
    "MSG_REGION": ("x",),
    "POP_CK": ("1 2 3", "x"),
    "1ST_POP_TIME": ("x",),
    "INSTANCE_ID": ("x",),
    "BORN_TIMESTAMP": ("x",),
    "BUYER_ID": ("x",),
    "__SHARDINGKEY": ("x",),
    "CLUSTER": ("x",),
    "REAL_TOPIC": ("refunds",),
    "REAL_QID": ("99",),
    "UNIQ_KEY": ("same", "é", "x" * 300),
    "oncemq-keys": ('["a"]', "[", '[1, "\\ud800"]', "[" * 3000),
    "oncemq-escaped": ('{"oncemq-attempt": "99"}', "[", '{"a": 1}', '{"\\ud800": "\\ud800"}'),
    "oncemq-message-id": ("same", "\u2028"),
    "oncemq-given-back": ("1",),
}


def rocket(random: Random, number: int) -> Odd:
    """Return a message for RocketMQ; its way is a `Rocket`."""
    body = odd_body(random, number)
    properties = {"UNIQ_KEY": f"{random.getrandbits(128):032X}"}
    for name in random.sample(sorted(_SYSTEM), random.randrange(5)):
        properties[name] = random.choice(_SYSTEM[name])
    separators = str.maketrans("", "", "\x01\x02")
    for name, text in odd_headers(random).items():
        properties[name.translate(separators) or "n"] = text.translate(separators)
    if random.random() < 0.15:
        used = sum(len(f"{name}\x01{text}\x02".encode()) for name, text in properties.items())
        wanted = LONGEST - random.choice([0, 1, 2, 300, 700, 1500, 4000])
        if used + 6 < wanted:
            properties["pad"] = "x" * (wanted - used - 5)
    system, flag = 0, random.choice([0, 0, 1, 2**31 - 1])
    if random.random() < 0.3:
        way = random.choice(sorted(_PACKED))
        system = _PACKED[way]
        packed = random.choice([zlib.compress(body), gzip.compress(body), body, zlib.compress(body)[:-3]])
        body = packed or body
    return Odd(body, Rocket(properties, system, flag))


def sample(kind: Any, random: Random, count: int) -> Sequence[Odd]:
    """Return so many messages of a kind, such as `amqp`."""
    return [kind(random, number) for number in range(count)]


__all__ = ["Odd", "Rocket", "amqp", "headers_only", "odd_headers", "rocket", "sample"]
