"""Reads a RocketMQ for the oracle, with none of the framework's code: what lies in its queues, and how far a group is."""

import base64
import hashlib
import hmac
import json
import re
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

_PULL, _COMMITTED, _MAX, _MIN, _MEMBERS, _ROUTE, _CLUSTER = 11, 14, 30, 31, 38, 105, 106
_SUCCESS, _NO_TOPIC, _AT_ONCE, _MOVED, _NEVER = 0, 17, 20, 21, 22
_ANSWER = 1
# A pull that neither waits nor commits, with a subscription of its own.
_LOOK_ONLY = {
    "consumerGroup": "TOOLS_CONSUMER",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
_HEAD = struct.Struct(">iiiiiqqiq")
"""Size, layout, checksum, queue, flag, offset, place in the log, flags of the system, when it was born."""
_LONG_TOPIC, _PACKED, _SENDER_6, _BROKER_6 = -626843477, 1, 16, 32


class Found(NamedTuple):
    """A message as it lies in a queue."""

    body: bytes
    properties: Mapping[str, str]


class Reader:
    """The brokers behind the name servers of a URL; connects again for each question, because it asks few.

    Args:
        url: of any of the drivers; a proxy's names its name servers.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._login = (parts.username or "", parts.password or "")
        names = parse_qs(parts.query).get("name_servers") or [parts.netloc.rpartition("@")[2]]
        self._names = names[0].split(",")

    def depth(self, group: str, topic: str) -> int:
        """Return how many messages of a topic a group has not finished; 0 where there is no such topic."""
        total = 0
        for broker, queue in self._queues(topic):
            place = {"topic": topic, "queueId": str(queue)}
            last = self._offset(broker, _MAX, place)
            done = self._offset(broker, _COMMITTED, {**place, "consumerGroup": group})
            total += last - (self._offset(broker, _MIN, place) if done is None else done)
        return total

    def shares(self, topic: str) -> dict[str, int]:
        """Return how many messages of a topic each broker has stored, by its address."""
        found: dict[str, int] = {}
        for broker, queue in self._queues(topic):
            place = {"topic": topic, "queueId": str(queue)}
            found[broker] = found.get(broker, 0) + self._offset(broker, _MAX, place)
        return found

    def messages(self, topic: str) -> Iterator[Found]:
        """Yield everything that lies in a topic."""
        for broker, queue in self._queues(topic):
            place = {"topic": topic, "queueId": str(queue)}
            at = self._offset(broker, _MIN, place)
            with _connected(broker) as connection:
                while True:
                    fields = {**_LOOK_ONLY, **place, "queueOffset": str(at)}
                    code, answer, body = self._ask(connection, _PULL, fields)
                    following = int(answer.get("nextBeginOffset", at))
                    if code == _SUCCESS:
                        yield from _decoded(body)
                    elif code not in {_AT_ONCE, _MOVED} or following <= at:
                        break
                    at = following

    def members(self, group: str) -> list[str]:
        """Return the ids of a group's members, as any broker knows them."""
        known: set[str] = set()
        for broker in self._brokers().values():
            with _connected(broker) as connection:
                code, _, body = self._ask(connection, _MEMBERS, {"consumerGroup": group})
            if code == _SUCCESS:
                known.update(_loose(body).get("consumerIdList") or ())
        return sorted(known)

    def _queues(self, topic: str) -> list[tuple[str, int]]:
        code, body = self._ask_names(_ROUTE, {"topic": topic})
        if code == _NO_TOPIC:
            return []
        route = _loose(body)
        where = {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}
        return [
            (where[queue["brokerName"]], number)
            for queue in route["queueDatas"]
            for number in range(queue["readQueueNums"])
        ]

    def _brokers(self) -> dict[str, str]:
        _, body = self._ask_names(_CLUSTER, {})
        return {name: broker["brokerAddrs"]["0"] for name, broker in _loose(body)["brokerAddrTable"].items()}

    def _offset(self, broker: str, code: int, fields: Mapping[str, str]) -> Any:
        """Return an offset; None where a group has none."""
        with _connected(broker) as connection:
            said, answer, _ = self._ask(connection, code, fields)
        if said == _NEVER:
            return None
        return int(answer["offset"])

    def _ask_names(self, code: int, fields: Mapping[str, str]) -> tuple[int, bytes]:
        failure: OSError | None = None
        for address in self._names:
            try:
                with _connected(address) as connection:
                    said, _, body = self._ask(connection, code, fields)
                    return said, body
            except OSError as error:
                failure = error
        raise failure or OSError("there is no name server")

    def _ask(
        self, connection: socket.socket, code: int, fields: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        request = {
            "code": code,
            "language": "OTHER",
            "version": 401,
            "opaque": 1,
            "flag": 0,
            "extFields": self._signed(fields),
        }
        head = json.dumps(request).encode()
        connection.sendall(struct.pack(">ii", 4 + len(head), len(head)) + head)
        while True:
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            data = _exactly(connection, size)
            (length,) = struct.unpack_from(">i", data)
            answer = _loose(data[4 : 4 + length])
            if answer["flag"] & _ANSWER:
                return answer["code"], answer.get("extFields") or {}, data[4 + length :]

    def _signed(self, fields: Mapping[str, str]) -> Mapping[str, str]:
        user, secret = self._login
        if not user:
            return fields
        said = {**fields, "AccessKey": user}
        text = "".join(said[name] for name in sorted(said)).encode()
        digest = hmac.new(secret.encode(), text, hashlib.sha1).digest()
        return {**said, "Signature": base64.b64encode(digest).decode()}


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("the server has hung up")
        data += part
    return data


def _loose(text: bytes) -> Any:
    """Read JSON in which numbers may be names without quotes."""
    return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', text))


def _decoded(data: bytes) -> Iterator[Found]:
    start = 0
    while start < len(data):
        size, layout, _, _, _, _, _, flags, _ = _HEAD.unpack_from(data, start)
        at = start + _HEAD.size + (20 if flags & _SENDER_6 else 8)
        at += 8 + (20 if flags & _BROKER_6 else 8) + 4 + 8
        body, at = _part(data, at, ">i")
        _, at = _part(data, at, ">H" if layout == _LONG_TOPIC else ">B")
        text, _ = _part(data, at, ">H")
        pairs = (tuple(pair.split("\x01", 1)) for pair in text.decode().split("\x02") if "\x01" in pair)
        yield Found(zlib.decompress(body) if flags & _PACKED else body, dict(pairs))
        start += size


def _part(data: bytes, at: int, form: str) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(form, data, at)
    at += struct.calcsize(form)
    return data[at : at + length], at + length
