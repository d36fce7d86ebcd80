"""A small payments service, on WSGI and on ASGI, behind the middleware; its table would show a double effect."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Protocol
from wsgiref.util import setup_testing_defaults

import httpx
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, func, insert, select
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.routing import Route

from oncemq.idempotent_requests import (
    IdempotentASGI,
    IdempotentWSGI,
    RequestLedger,
    Rules,
    session,
)

METADATA = MetaData()
PAYMENTS = Table(
    "payments",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account", String(100)),
    Column("amount", Integer),
)
MakeService = Callable[..., "Service"]
Handler = Callable[[Mapping[str, Any]], tuple[int, dict[str, str], bytes]]


def pay(order: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """Take a payment in the lent session; `status` says what is answered."""
    taken = session().execute(insert(PAYMENTS).values(account=order["account"], amount=order["amount"]))
    number = taken.inserted_primary_key[0]
    headers = {"Content-Type": "application/json", "Location": f"/payments/{number}", "Set-Cookie": "a=b"}
    return order.get("status", 201), headers, json.dumps({"payment": number}).encode()


def payments(engine: Engine, account: str) -> int:
    """Return how many payments of an account there are."""
    with engine.connect() as connection:
        count = select(func.count()).select_from(PAYMENTS).where(PAYMENTS.c.account == account)
        return connection.execute(count).scalar_one()


@dataclass
class Reply:
    """What a caller sees."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, decoded."""
        return json.loads(self.body)


@dataclass
class Call:
    """What a caller sends."""

    body: bytes
    key: str | None = '"k-1"'
    method: str = "POST"
    path: str = "/payments"
    headers: dict[str, str] = field(default_factory=dict)

    def sent(self) -> dict[str, str]:
        """Return all headers."""
        given = {} if self.key is None else {"Idempotency-Key": self.key}
        return {"Content-Type": "application/json", **given, **self.headers}


def order(account: str = "ann", amount: int = 5, *, key: str | None = '"k-1"', **more: Any) -> Call:
    """Return the request that orders a payment."""
    return Call(json.dumps({"account": account, "amount": amount, **more}).encode(), key=key)


class Service(Protocol):
    """The service behind the middleware."""

    def call(self, call: Call) -> Reply:
        """Send one request and wait for its answer."""
        ...


def wsgi_app(handler: Handler) -> Any:
    """Return the service as a WSGI application."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))
        status, headers, answer = handler(json.loads(body or b"{}"))
        start_response(f"{status} Whatever", list(headers.items()))
        return [answer[:5], answer[5:]]

    return app


def asgi_app(handler: Handler) -> Starlette:
    """Return the service as an ASGI application."""

    async def endpoint(request: StarletteRequest) -> Response:
        order = json.loads(await request.body() or b"{}")
        status, headers, answer = await run_in_threadpool(handler, order)
        return Response(answer, status, headers)

    return Starlette(routes=[Route("/{path:path}", endpoint, methods=["GET", "POST", "PATCH"])])


class WSGIService:
    """Calls the middleware as a server does."""

    def __init__(self, handler: Handler, ledger: RequestLedger, rules: Rules) -> None:
        self.app = IdempotentWSGI(wsgi_app(handler), ledger, rules)

    def call(self, call: Call) -> Reply:
        """Send one request and wait for its answer."""
        environ: dict[str, Any] = {
            "REQUEST_METHOD": call.method,
            "PATH_INFO": call.path,
            "CONTENT_LENGTH": str(len(call.body)),
            "wsgi.input": BytesIO(call.body),
        }
        for name, text in call.sent().items():
            http = name.upper().replace("-", "_")
            environ[http if http == "CONTENT_TYPE" else f"HTTP_{http}"] = text
        setup_testing_defaults(environ)
        seen: list[Any] = []
        body = b"".join(self.app(environ, lambda *given: seen.append(given)))
        status, headers = seen[0]
        return Reply(int(status.split()[0]), {name.lower(): text for name, text in headers}, body)


class ASGIService:
    """Calls the middleware as a server does."""

    def __init__(self, handler: Handler, ledger: RequestLedger, rules: Rules) -> None:
        self.app = IdempotentASGI(asgi_app(handler), ledger, rules)

    def call(self, call: Call) -> Reply:
        """Send one request and wait for its answer."""
        return asyncio.run(self.send(call))

    async def send(self, call: Call) -> Reply:
        """Send one request on the running loop."""
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://payments") as client:
            reply = await client.request(call.method, call.path, content=call.body, headers=call.sent())
        return Reply(reply.status_code, dict(reply.headers), reply.content)


SERVICES: dict[str, Callable[[Handler, RequestLedger, Rules], Service]] = {
    "wsgi": WSGIService,
    "asgi": ASGIService,
}
