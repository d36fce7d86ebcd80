"""Redis: one server that keeps its data over a kill."""

import shutil
import socket
from collections.abc import Sequence
from typing import ClassVar

from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.server import Server


class Redis(Server):
    """One Redis server with a password."""

    kind: ClassVar[str] = "redis"
    variable: ClassVar[str] = "ONCEMQ_TEST_REDIS"
    packages: ClassVar[Sequence[str]] = ("redis-server",)
    port_names: ClassVar[Sequence[str]] = ("redis",)
    users: ClassVar[Sequence[str]] = ("redis",)

    @classmethod
    def installed(cls) -> bool:
        """Return whether the server's program is found."""
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return f"redis://:{self.settings.password}@{LOOPBACK}:{self.port}/0"

    def answers(self) -> bool:
        """Return whether it has read its data and answers."""
        return ask(self.port, "PING", password=self.settings.password).startswith("+PONG")

    def prepare(self) -> None:
        """Write the configuration; the server makes its data itself."""
        self.account.write(self.data / "redis.conf", "\n".join(plain_settings(self)) + "\n")

    def launches(self) -> Sequence[Launch]:
        """Return the server's one process."""
        program = _program()
        return [
            Launch(
                "redis",
                [program, str(self.data / "redis.conf"), "--dir", str(self.data)],
                listens_on=self.port,
            )
        ]


def plain_settings(server: Server) -> list[str]:
    """Return the settings of every node; a killed node loses at most its last second, as most do."""
    return [
        f"bind {LOOPBACK}",
        f"port {server.port}",
        f"requirepass {server.settings.password}",
        f"masterauth {server.settings.password}",
        "daemonize no",
        'logfile ""',
        'save ""',
        "appendonly yes",
        "appendfsync everysec",
    ]


def _program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        raise ServiceError("Redis is not installed. Run `make services`.")
    return found


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
