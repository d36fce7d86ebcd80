"""Servers that show right and wrong certificates to clients that trust right and wrong authorities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from services import catalog
from services.ports import LOOPBACK
from support.tls.certificates import Authority, Certificate, self_signed
from support.tls.servers import TlsMariaDB, TlsPostgreSQL, TlsRabbitMQ, TlsRedis

Serve = Callable[[str], None]
"""Have the server show another certificate, by its label."""

TlsServer = TypeVar("TlsServer", TlsRabbitMQ, TlsPostgreSQL, TlsMariaDB, TlsRedis)


@dataclass(frozen=True)
class Case:
    """One server and how it is asked for.

    Args:
        served: which certificate the server shows.
        trusted: which authority the client trusts.
        host: by which name the client asks.
        why: what the refusal says; empty where it is the right server.
    """

    served: str
    trusted: str
    host: str
    why: str


# Ordered by what is served: each change restarts the server.
CASES = {
    "right": Case("right", "ours", "localhost", ""),
    "wrong host": Case("right", "ours", LOOPBACK, "match|mismatch"),
    "wrong authority": Case("right", "other", "localhost", "verify failed"),
    "system's authorities": Case("right", "", "localhost", "verify failed"),
    "expired": Case("expired", "ours", "localhost", "expired|verify failed"),
    "other host's": Case("other", "ours", "localhost", "match|mismatch|valid for"),
    "self-signed": Case("self-signed", "ours", "localhost", "self-signed|self signed|verify failed"),
}


class Material:
    """Every certificate of these tests."""

    def __init__(self, folder: Path) -> None:
        ours, other = Authority(folder, "ours"), Authority(folder, "other-authority")
        self.trusted = {"ours": ours.file, "other": other.file}
        self.served: dict[str, Certificate] = {
            "right": ours.issue("right"),
            "address": ours.issue("address", LOOPBACK),
            "expired": ours.issue("expired", ended=True),
            "other": ours.issue("other", "elsewhere.invalid"),
            "self-signed": self_signed(folder, "self-signed"),
        }


def serving(kind: type[TlsServer], material: Material) -> Iterator[tuple[TlsServer, Serve]]:
    """Lend a server of this kind, which starts with the first certificate that it shall show."""
    servers = catalog.OwnServers(catalog.FOLDER)
    server = servers.make(kind)
    assert isinstance(server, kind), (
        "these tests start the servers themselves, so that they can give certificates"
    )

    def serve(label: str) -> None:
        certificate = material.served[label]
        if getattr(server, "certificate", None) == certificate:
            return
        server.stop() if hasattr(server, "certificate") else None
        server.certificate = certificate
        server.start()

    try:
        yield server, serve
    finally:
        servers.remove(server)
