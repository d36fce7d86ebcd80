"""TCP proxy on the loopback interface with faults on command: cuts, refuses, freezes, slows down."""

import socket
import struct
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Self

LOOPBACK = "127.0.0.1"
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset, as a broken network does."""


class TcpProxy:
    """Passes bytes between clients and one server, and injects faults on request.

    Args:
        host: the server's.
        port: the server's.
        port_here: to listen on; 0 = any free port.
    """

    def __init__(self, host: str, port: int, port_here: int = 0) -> None:
        self._target = (host, port)
        self._lock = Lock()
        self._connections: set[_Connection] = set()
        self._flowing = Event()
        self._flowing.set()
        self._latency = 0.0
        self._answers_lost = 0
        self._accepting = False
        self._listener = self._listen(port_here)
        self.port = int(self._listener.getsockname()[1])
        self._accept_on(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where clients connect, as `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        with self._lock:
            return len(self._connections)

    def redirect(self, host: str, port: int) -> None:
        """Pass new connections to another server, as a DNS name does after a failover; open ones stay."""
        self._target = (host, port)

    def cut(self) -> None:
        """Reset every connection; new ones work."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.reset()

    def refuse(self) -> None:
        """Refuse new connections and reset those that exist, until `accept`."""
        with self._lock:
            self._accepting = False
        with suppress(OSError):
            # Wakes the accepting thread; closing alone would leave it waiting, and the port open.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def accept(self) -> None:
        """Take connections again, on the same port."""
        if not self._accepting:
            self._listener = self._listen(self.port)
            self._accept_on(self._listener)

    def freeze(self) -> None:
        """Pass no data in either direction; connections stay open and new ones are accepted."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass the data that was held back, and all that follows."""
        self._flowing.set()

    def strand(self) -> int:
        """Pass no data on existing connections, as if their peers had vanished; new ones work.

        Returns how many there are; `cut` ends them.
        """
        return self._mark("stranded")

    def lose_answers(self) -> int:
        """Drop the server's answers on existing connections; clients' data still reaches it.

        Returns how many there are; `cut` ends them.
        """
        return self._mark("deaf")

    @property
    def answers_lost(self) -> int:
        """Number of dropped pieces of data."""
        return self._answers_lost

    def slow_down(self, seconds: float) -> None:
        """Delay each piece of data by `seconds`; 0 = no delay."""
        self._latency = seconds

    def close(self) -> None:
        """Stop for good."""
        self.refuse()
        self._flowing.set()

    def hold(self, ended: Event) -> None:
        """Wait while data may not flow; called by the connections."""
        if self._latency:
            ended.wait(self._latency)
        while not self._flowing.wait(0.1) and not ended.is_set():
            pass

    def changed(self, data: bytes) -> bytes:
        """Return the data to send to clients instead; a subclass may change it."""
        return data

    def forget(self, connection: "_Connection") -> None:
        """Note that a connection has ended; called by the connections."""
        with self._lock:
            self._connections.discard(connection)

    def count_lost(self) -> None:
        """Note that an answer was dropped; called by the connections."""
        with self._lock:
            self._answers_lost += 1

    def _mark(self, what: str) -> int:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            setattr(connection, what, True)
        return len(connections)

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(128)
        return listener

    def _accept_on(self, listener: socket.socket) -> None:
        self._accepting = True
        Thread(target=self._serve, args=(listener,), name="tcp-proxy", daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                # In a separate thread, because a server that is slow to answer must not block other clients.
                Thread(target=self._connect, args=(client,), name="tcp-proxy", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        connection = _Connection(self, client, server)
        with self._lock:
            welcome = self._accepting
            if welcome:
                self._connections.add(connection)
        if welcome:
            connection.start()
        else:
            connection.reset()


class _Connection:
    """One client's connection: two threads that pass bytes on.

    Attributes:
        stranded: no data is passed any more.
        deaf: no answer of the server is passed any more.
    """

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._ended = Event()
        self.stranded = False
        self.deaf = False

    def start(self) -> None:
        for source, target in ((self._client, self._server), (self._server, self._client)):
            Thread(target=self._pass_on, args=(source, target), name="tcp-proxy", daemon=True).start()

    def reset(self) -> None:
        """End it as a broken network would."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._end()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._proxy.hold(self._ended)
                if self.stranded:
                    self._ended.wait()
                elif self.deaf and source is self._server:
                    self._proxy.count_lost()
                else:
                    target.sendall(self._proxy.changed(data) if source is self._server else data)
        self._end()

    def _end(self) -> None:
        self._ended.set()
        for end in (self._client, self._server):
            with suppress(OSError):
                # Wakes the thread that reads from it.
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy.forget(self)
