"""Bytes to and from a peer, over a connection that has any number."""

import resource
import socket
import ssl
from collections.abc import Iterator

import pytest

from oncemq_adapters.rocketmq_client.protocol.connection import TlsStream

HIGH = 1500


class Hesitating(socket.socket):
    """A socket that wants to wait first, as TLS does."""

    waits = 1

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Wait once, then receive."""
        if self.waits:
            self.waits -= 1
            raise ssl.SSLWantReadError
        return super().recv(size, flags)

    def send(self, data: object, flags: int = 0) -> int:
        """Wait once, then send."""
        if self.waits:
            self.waits -= 1
            raise ssl.SSLWantWriteError
        return super().send(data, flags)  # type: ignore[arg-type]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Have the process open more than 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * HIGH if hard == resource.RLIM_INFINITY else min(2 * HIGH, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened = []
    while not opened or opened[-1].fileno() < HIGH:
        opened.append(socket.socket())
    yield
    for opened_socket in opened:
        opened_socket.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_tls_waits_in_a_process_with_many_open_files() -> None:
    """A descriptor above 1,023 is waited for as any other."""
    here, there = socket.socketpair()
    assert here.fileno() >= HIGH
    peer = Hesitating(fileno=here.detach())
    with there, peer:
        stream = TlsStream(peer)  # type: ignore[arg-type]
        there.sendall(b"question")
        assert stream.receive() == b"question"
        peer.waits = 1
        stream.send(b"answer")
        assert there.recv(100) == b"answer"
