"""Asks a Redis server one question over a connection of its own, with nothing installed but Python."""

import socket

from services.ports import LOOPBACK


def ask(port: int, *words: str, password: str, seconds: float = 2) -> str:
    """Return the server's whole answer as it came over the wire; empty when there is none."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds) as connection:
            connection.sendall(_request("AUTH", password) + _request(*words) + _request("QUIT"))
            answer = b""
            while part := connection.recv(65536):
                answer += part
    except OSError:
        return ""
    first, _, rest = answer.decode(errors="replace").partition("\r\n")
    return rest if first == "+OK" else first


def _request(*words: str) -> bytes:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(parts)}\r\n{''.join(parts)}".encode()
