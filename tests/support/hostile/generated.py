"""Hostile messages and configuration files without end: the same seed gives the same ones."""

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

from oncemq.message.envelope import Message
from support.hostile.nasties import ENCODINGS, SHAPES, TEXTS, VALUES, Nasty, nasties

MOSTLY_SHORT = 4096
_TOKENS = [
    *(value.encode("utf-8", "surrogatepass") for value in VALUES.values() if len(value) < 300),
    *(shape for shape in SHAPES.values() if len(shape) < 300),
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u", b"\\ud800", b"\xff", b"\x00", b"\xef\xbb\xbf"),
]
_NAMES = ["order_id", "version", "x", "amount", "", "order_id\0", "Order_ID", "__class__", "é"]
_HEADERS = ["tenant", "Tenant", "content-encoding", "content-type", "oncemq-attempt", "oncemq-key", "x-death"]


class Messages:
    """An endless stream of messages.

    Args:
        seed: of every choice.
        large: also those of the corpus that are larger than a few kilobytes.
    """

    def __init__(self, seed: int, *, large: bool = False) -> None:
        self._draw = random.Random(seed)
        self._corpus: list[Nasty] = [
            nasty for nasty in nasties() if large or len(nasty.message.body) < MOSTLY_SHORT
        ]
        self._kinds: list[Callable[[], bytes]] = [
            self._noise,
            self._json,
            self._mutant,
            self._splice,
            self._good,
        ]

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield self.message()

    def message(self) -> Message:
        """Return the next message."""
        draw = self._draw
        if draw.random() < 0.05:
            return draw.choice(self._corpus).message
        body = draw.choice(self._kinds)()
        headers = {self._text(_HEADERS): self._text() for _ in range(draw.randrange(3))}
        if draw.random() < 0.05:
            headers["content-encoding"], body = draw.choice(_ENCODED)
            body = self._damaged(body)
        keys = tuple(self._text() for _ in range(draw.randrange(3)))
        return Message("orders", body, None if draw.random() < 0.3 else self._text(), headers, keys)

    def _text(self, likely: list[str] | None = None) -> str:
        draw = self._draw
        if likely and draw.random() < 0.8:
            return draw.choice(likely)
        if draw.random() < 0.3:
            return draw.choice(list(TEXTS.values()))
        return "".join(chr(self._point()) for _ in range(draw.randrange(12)))

    def _point(self) -> int:
        top = self._draw.choice((0x7F, 0x7F, 0x2FF, 0xFFFF, 0x10FFFF))
        return self._draw.randrange(top + 1)

    def _noise(self) -> bytes:
        return self._draw.randbytes(self._draw.choice((0, 1, 3, 30, 300)))

    def _good(self) -> bytes:
        return b'{"order_id": "o-%d", "version": %d}' % (
            self._draw.randrange(10**6),
            self._draw.randrange(100),
        )

    def _json(self) -> bytes:
        return json.dumps(self._value(4), ensure_ascii=self._draw.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )

    def _value(self, depth: int) -> Any:
        draw = self._draw
        kind = draw.randrange(9 if depth else 6)
        if kind == 0:
            return draw.choice((None, True, False, 0, 1, -1))
        if kind == 1:
            return draw.getrandbits(draw.choice((8, 63, 64, 65, 500, 4000))) * draw.choice((1, -1))
        if kind == 2:
            return draw.choice((0.5, 1e308, float("nan"), float("inf"), -0.0, 5e-324))
        if kind < 6:
            return self._text()
        if kind == 6:
            return [self._value(depth - 1) for _ in range(draw.randrange(4))]
        return {
            draw.choice(_NAMES) if draw.random() < 0.8 else self._text(): self._value(depth - 1)
            for _ in range(draw.randrange(5))
        }

    def _mutant(self) -> bytes:
        return self._damaged(self._good() if self._draw.random() < 0.5 else self._json())

    def _splice(self) -> bytes:
        return b"".join(self._draw.choice(_TOKENS) for _ in range(self._draw.randrange(1, 12)))

    def _damaged(self, body: bytes) -> bytes:
        draw = self._draw
        for _ in range(draw.randrange(1, 5)):
            place = draw.randrange(len(body) + 1)
            end = min(len(body), place + draw.randrange(8))
            filling = draw.choice((b"", draw.randbytes(1), draw.choice(_TOKENS), body[place:end] * 2))
            body = body[:place] + filling + body[end:]
        return body


_ENCODED = [entry for entry in ENCODINGS.values() if len(entry[1]) < MOSTLY_SHORT and len(entry[0]) < 300]

_FILE = """\
app: shop
brokers:
  main: {url: "scripted://user:password@host", username: guest, password: "${PASSWORD:-guest}"}
database: {url: "sqlite://", pool_size: 3}
defaults:
  keep: 7d
  retry: {attempts: 6, backoff: {first: 1s, factor: 4, max: 10m, jitter: 0.2}}
  limits: {soft: 20s, hard: 60s}
topics:
  orders: {broker: main, key: body.id, version: body.version, identity: [body.id, body.no], strategies: [decide]}
  rides:
    key: keys[0]
    strategies:
      - guard
      - decide: {to: body.status, states: [a, b, c]}
consumers:
  count: {topic: orders, group: g, handler: "os.path:basename", workers: auto}
  mail: {topic: rides, handler: "os.path:dirname", effects: external, strategies: [direct], retry: {attempts: 2}}
http: {address: "127.0.0.1:9000"}
logging: {level: info, format: json}
grace: 30s
"""
_YAML = [
    *(
        "&a ",
        "*a",
        "<<: *a",
        "!!python/object:os.system ",
        "!!binary ",
        "!x ",
        "? ",
        "- ",
        ": ",
        "| ",
        "> ",
        "%YAML 1.2\n",
    ),
    *(
        "---\n",
        "...\n",
        "\t",
        "\r",
        "\n\n",
        "    ",
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        ",",
        "#",
        "@",
        "`",
        "\0",
        "\x1b",
    ),
    *(
        "\ufeff",
        "\u2028",
        "\u200b",
        "é",
        "😀",
        "null",
        "~",
        "yes",
        "no",
        "1e999",
        ".nan",
        "0x1F",
        "22:22",
        "2026-01-01",
    ),
    *(
        "${",
        "${A}",
        "${A:-}",
        "${PASSWORD}",
        "${A:-${B}}",
        "$" * 50,
        "{" * 60,
        "[" * 60,
        "a" * 3000,
        "9" * 6000,
    ),
    *(
        "body.",
        "body[0]",
        "body.*",
        "keys[99999999999]",
        "a || b",
        "-1s",
        "1h1",
        "∞",
        "10000000d",
        "1.5.5s",
        "../..",
        "%s",
    ),
]


class Files:
    """An endless stream of configuration files: a right one with a few mistakes, or with many."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.file()

    def file(self) -> bytes:
        """Return the next file."""
        draw = self._draw
        text = _FILE if draw.random() < 0.95 else "".join(draw.choices(_YAML, k=draw.randrange(1, 60)))
        for _ in range(draw.choice((0, 1, 1, 2, 3, 5, 20))):
            text = self._changed(text)
        raw = text.encode("utf-8", "surrogatepass")
        if draw.random() < 0.05:
            place = draw.randrange(len(raw) + 1)
            raw = raw[:place] + draw.randbytes(draw.randrange(1, 4)) + raw[place:]
        return (
            raw
            if draw.random() < 0.98
            else text.encode(draw.choice(("utf-16", "utf-32", "utf-7")), "replace")
        )

    def _changed(self, text: str) -> str:
        draw, kind = self._draw, self._draw.randrange(6)
        place = draw.randrange(len(text) + 1)
        if kind == 0:
            return text[:place] + draw.choice(_YAML) + text[place:]
        if kind == 1:
            return text[:place] + text[place + draw.randrange(1, 30) :]
        if kind == 2:
            return text[:place] + draw.choice(string.printable) + text[place + 1 :]
        lines = text.splitlines(keepends=True)
        if kind == 3 and lines:
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
        elif kind == 4 and lines:
            del lines[draw.randrange(len(lines))]
        elif lines:
            words = text.split(" ")
            words[draw.randrange(len(words))] = draw.choice([*_YAML, *words])
            return " ".join(words)
        return "".join(lines)
