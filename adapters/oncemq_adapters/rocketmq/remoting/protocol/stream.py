"""Bytes to and from a peer, sent by any thread and received by one; TLS needs more care for that than plain TCP."""

import select
import socket
import ssl
from contextlib import suppress
from threading import Lock
from typing import Protocol

CHUNK = 1 << 18
SEND_WITHIN = 10.0
"""Seconds; a peer that takes nothing for so long has vanished."""
_WAIT = SEND_WITHIN * 1000


class Stream(Protocol):
    """A connected peer."""

    def send(self, data: bytes) -> None:
        """Send everything; safe for any number of threads."""
        ...

    def receive(self) -> bytes:
        """Return some bytes, empty when the peer has closed; for one thread."""
        ...

    def shut(self) -> None:
        """Disconnect, which wakes whoever sends or receives."""
        ...

    def release(self) -> None:
        """Give the socket back to the system; for the thread that receives, when it does so no more."""
        ...


def connect(address: str, tls: ssl.SSLContext | None, timeout: float) -> Stream:
    """Return a stream to `host:port`.

    Raises:
        OSError: it cannot be reached, or proves to be somebody else.
    """
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host.strip("[]"), int(port)), timeout)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            return TlsStream(tls.wrap_socket(raw, server_hostname=host.strip("[]")))
    except BaseException:
        raw.close()
        raise
    return PlainStream(raw)


class PlainStream:
    """TCP: one thread may receive while others send."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(SEND_WITHIN)
        self._socket = connected
        self._lock = Lock()

    def send(self, data: bytes) -> None:
        """Send everything."""
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> bytes:
        """Return some bytes; waits as long as it takes."""
        while True:
            with suppress(TimeoutError):
                return self._socket.recv(CHUNK)

    def shut(self) -> None:
        """Disconnect."""
        _shut(self._socket)

    def release(self) -> None:
        """Give the socket back to the system."""
        self._socket.close()


class TlsStream:
    """TLS: the library's state is one for both directions, so nobody waits while he holds it."""

    def __init__(self, connected: ssl.SSLSocket) -> None:
        connected.setblocking(False)
        self._socket = connected
        # Not select(), which takes no descriptor above 1,023.
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable.register(connected, select.POLLOUT)
        self._lock = Lock()
        self._sending = Lock()

    def send(self, data: bytes) -> None:
        """Send everything."""
        left = memoryview(data)
        with self._sending:
            while left:
                try:
                    with self._lock:
                        left = left[self._socket.send(left) :]
                except ssl.SSLWantWriteError:
                    self._wait(writing=True)
                except ssl.SSLWantReadError:
                    self._wait(writing=False)

    def receive(self) -> bytes:
        """Return some bytes; waits as long as it takes."""
        while True:
            try:
                with self._lock:
                    return self._socket.recv(CHUNK)
            except ssl.SSLWantReadError:
                self._readable.poll(_WAIT)
            except ssl.SSLWantWriteError:
                self._writable.poll(_WAIT)

    def shut(self) -> None:
        """Disconnect."""
        _shut(self._socket)

    def release(self) -> None:
        """Give the socket back to the system."""
        self._socket.close()

    def _wait(self, *, writing: bool) -> None:
        if not (self._writable if writing else self._readable).poll(_WAIT):
            raise TimeoutError("the peer takes nothing")


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
