"""What librocketmq's sockets are made to do from outside."""

import socket
from pathlib import Path

from oncemq.testing.tcp_proxy import LOOPBACK
from oncemq_adapters.librocketmq.library import send_at_once


def _no_delay(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_open_connections_keep_nothing_back() -> None:
    """A connection that someone else in this process has opened sends small requests at once from then on."""
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        assert not _no_delay(connection)
        send_at_once()
        assert _no_delay(connection)


def test_whatever_else_is_open_stays_as_it_is() -> None:
    """Files, pipes and sockets of other families are left alone, and stay open."""
    near, other = socket.socketpair()
    with near, other, Path(__file__).open("rb") as file:
        send_at_once()
        near.sendall(b"x")
        assert other.recv(1) == b"x"
        assert file.read(1) == b'"'
