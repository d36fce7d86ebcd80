"""Asks an AMQP 0-9-1 server for a connection and closes it, to know that it really answers."""

import socket
import struct

from services.ports import LOOPBACK

HEADER = b"AMQP\x00\x00\x09\x01"
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = 10, 11, 30, 31, 40, 41, 50, 51


def answers(port: int, *, user: str, password: str, seconds: float = 3) -> bool:
    """Return whether the server opens the virtual host `/` for this user."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds) as connection:
            return _shake_hands(connection, user, password)
    except (OSError, EOFError, struct.error):
        return False


def _shake_hands(connection: socket.socket, user: str, password: str) -> bool:
    connection.sendall(HEADER)
    if _read(connection)[0] != START:
        return False
    _write(connection, START_OK, _start_ok(user, password))
    method, arguments = _read(connection)
    if method != TUNE:
        return False
    _write(connection, TUNE_OK, arguments[:8])
    _write(connection, OPEN, _short("/") + _short("") + b"\x00")
    if _read(connection)[0] != OPEN_OK:
        return False
    _write(connection, CLOSE, struct.pack("!H", 200) + _short("answers") + struct.pack("!HH", 0, 0))
    return _read(connection)[0] == CLOSE_OK


def _start_ok(user: str, password: str) -> bytes:
    no_properties = struct.pack("!I", 0)
    response = f"\x00{user}\x00{password}".encode()
    return no_properties + _short("PLAIN") + struct.pack("!I", len(response)) + response + _short("en_US")


def _short(text: str) -> bytes:
    return struct.pack("!B", len(text)) + text.encode()


def _write(connection: socket.socket, method: int, arguments: bytes) -> None:
    payload = struct.pack("!HH", 10, method) + arguments
    connection.sendall(struct.pack("!BHI", 1, 0, len(payload)) + payload + b"\xce")


def _read(connection: socket.socket) -> tuple[int, bytes]:
    _, _, size = struct.unpack("!BHI", _exactly(connection, 7))
    payload = _exactly(connection, size + 1)[:-1]
    return struct.unpack("!HH", payload[:4])[1], payload[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
