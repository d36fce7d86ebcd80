"""The payments service as a process of its own: `python payments_server.py wsgi|asgi DATABASE NAME`; prints its port."""

import socket
import sys
from datetime import timedelta
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

sys.path.insert(0, str(Path(__file__).parents[2]))

import uvicorn

from oncemq.idempotent_requests import IdempotentASGI, IdempotentWSGI, RequestLedger, Rules
from support.apps.payments import asgi_app, pay, wsgi_app


class Threads(ThreadingMixIn, WSGIServer):
    """A thread for each request."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Log nothing."""


def serve(kind: str, database: str, name: str) -> None:
    """Serve until killed."""
    ledger = RequestLedger(database, name, lease=timedelta(seconds=2))
    rules = Rules(tenant=None)
    if kind == "wsgi":
        app = IdempotentWSGI(wsgi_app(pay), ledger, rules)
        server = make_server("127.0.0.1", 0, app, server_class=Threads, handler_class=Quiet)
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
        return
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(IdempotentASGI(asgi_app(pay), ledger, rules), log_level="error", lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    serve(*sys.argv[1:4])
