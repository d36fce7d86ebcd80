"""HTTP server for machines: `/metrics`, `/healthz`, `/readyz`, `/status`, on an address or, for a supervisor, on a local socket."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError

JSON = "application/json"
REQUEST_TIMEOUT = 5.0
"""Seconds for a whole request, including its answer; then the client is dropped."""

MOST = 16
"""Connections served at once; one more replaces the oldest."""

_REST = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint listens.

    Args:
        host: a name or an IP address, v6 without brackets.
        port: 0 lets the system choose one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalSocket:
    """Unix domain socket on which a worker process answers its supervisor.

    Args:
        path: of the socket; a stale file there is replaced.
    """

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one path."""

    status: HTTPStatus
    content_type: str
    body: bytes


def json_answer(content: Mapping[str, Any], *, ok: bool = True) -> Answer:
    """Return an answer with a JSON body; 503 where not `ok`, so that a probe need not parse it."""
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, JSON, json.dumps(content, indent=2).encode() + b"\n")


Route = Callable[[], Answer]


class Endpoint:
    """A small HTTP server in a daemon thread.

    Args:
        address: where to listen.
        routes: by path; called in each request's thread.

    Raises:
        ConfigError: the address cannot be used.
    """

    def __init__(self, address: Address | LocalSocket, routes: Mapping[str, Route]) -> None:
        self._given = address
        try:
            self._server = _Server(address, routes)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                [
                    Problem(
                        f"metrics and health cannot listen on {address}: {why}",
                        "choose another address or free this one",
                    )
                ]
            ) from error
        self._thread = threading.Thread(target=self._serve, name="oncemq-endpoint", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    @property
    def address(self) -> Address | LocalSocket:
        """Address it listens on; with the port that the system chose, if it was 0."""
        if isinstance(self._given, LocalSocket):
            return self._given
        host, port = self._server.server_address[:2]
        return Address(str(host), int(port))

    def close(self) -> None:
        """Stop listening; may be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=REQUEST_TIMEOUT)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address | LocalSocket, routes: Mapping[str, Route]) -> None:
        self.routes = dict(routes)
        self._lock = threading.Lock()
        self._open: dict[Any, float] = {}
        if isinstance(address, LocalSocket):
            self.address_family = socket.AF_UNIX
            with suppress(FileNotFoundError):
                os.unlink(address.path)  # noqa: PTH108 - of a process that died
            super().__init__(address.path, _Handler)  # type: ignore[arg-type]
            return
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__((address.host, address.port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        """Return a connection and its client, which has no address on a local socket."""
        request, client = super().get_request()
        return request, client or ("", 0)

    def server_bind(self) -> None:
        # Not HTTPServer's own: it resolves the host's name, which may take seconds.
        if self.address_family != socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; slow clients are replaced by new ones, so that a probe is always answered."""
        with self._lock:
            full = len(self._open) >= 2 * MOST
            if not full:
                self._open[request] = time.monotonic()
            oldest = list(self._open)[: max(0, len(self._open) - MOST)]
        _shut(oldest)
        if full:
            super().shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Note the end of a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Drop connections whose time is over; called several times a second."""
        before = time.monotonic() - REQUEST_TIMEOUT
        with self._lock:
            late = [request for request, since in self._open.items() if since < before]
        _shut(late)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: the client has disconnected."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server_version = "oncemq"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answer = self._answer()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        # One request per connection: data after it, such as a body, is never taken for a request.
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def finish(self) -> None:
        """Read the rest of the request: closing a connection with unread bytes would discard the answer."""
        super().finish()
        with suppress(OSError):
            self.connection.setblocking(False)
            self.connection.recv(_REST)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _answer(self) -> Answer:
        routes: dict[str, Route] = self.server.routes  # type: ignore[attr-defined]
        route = routes.get(urlsplit(self.path).path)
        if route is None:
            return Answer(HTTPStatus.NOT_FOUND, JSON, json.dumps({"paths": sorted(routes)}).encode() + b"\n")
        try:
            return route()
        except Exception as error:
            # The text of an error may contain anything; its class is enough, the log has the rest.
            body = json.dumps({"ok": False, "error": type(error).__qualname__}).encode() + b"\n"
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, JSON, body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: probes come every second."""


def _shut(connections: Sequence[socket.socket]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
