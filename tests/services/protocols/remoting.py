"""Asks a RocketMQ name server which brokers it knows, to know that it really answers."""

import json
import socket
import struct

from services.ports import LOOPBACK

CLUSTER_INFO = 106


def brokers(port: int, *, count: int = 1, seconds: float = 3) -> bool:
    """Return whether the name server on this port knows so many brokers."""
    request = {
        "code": CLUSTER_INFO,
        "language": "OTHER",
        "version": 401,
        "opaque": 1,
        "flag": 0,
        "extFields": {},
    }
    head = json.dumps(request).encode()
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(head), len(head)) + head)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return _exactly(connection, size).count(b'"brokerAddrs"') >= count
    except (OSError, EOFError, struct.error):
        return False


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
