"""What only ASGI has: event loops, disconnects, cancelled tasks, answers in pieces."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from oncemq.errors import ConfigError, HandlerFault
from oncemq.idempotent_requests import IdempotentASGI, RequestLedger, Rules, in_session, session
from oncemq.ledger.database.engine import make_engine
from support.apps.payments import PAYMENTS, ASGIService, Reply, order, pay, payments

Endpoint = Callable[[Any], Any]


def service(ledger: RequestLedger, endpoint: Endpoint, **rules: Any) -> ASGIService:
    """Return a service with one endpoint of our own."""
    made = ASGIService(pay, ledger, Rules(tenant=None, **rules))
    app = Starlette(routes=[Route("/payments", endpoint, methods=["POST"])])
    made.app = IdempotentASGI(app, ledger, Rules(tenant=None, **rules))
    return made


def test_an_async_handler_works_in_threads(ledger: RequestLedger) -> None:
    """On the event loop session() is refused; in_session() runs a function in a thread."""

    async def endpoint(_request: Any) -> Response:
        with pytest.raises(HandlerFault, match="event loop"):
            session()
        await in_session(lambda lent: lent.execute(insert(PAYMENTS).values(account="ann", amount=1)))
        return Response(b"paid")

    paid = service(ledger, endpoint)
    assert [paid.call(order()).body for _ in range(2)] == [b"paid", b"paid"]
    assert payments(ledger.engine, "ann") == 1


def test_more_requests_than_connections(ledger: RequestLedger) -> None:
    """They wait on the loop, not in threads that others need to commit; all are served, each once."""

    async def endpoint(request: Any) -> Response:
        await in_session(lambda lent: lent.execute(insert(PAYMENTS).values(account="ann", amount=1)))
        await asyncio.sleep(0)
        return Response(request.headers["idempotency-key"])

    crowded = service(ledger, endpoint)

    async def storm() -> list[Reply]:
        calls = [crowded.send(order(key=f'"k-{number}"')) for number in range(30) for _ in range(2)]
        return list(await asyncio.gather(*calls))

    replies = asyncio.run(storm())
    assert {reply.status for reply in replies} <= {200, 409}
    assert payments(ledger.engine, "ann") == 30


def test_nothing_goes_out_before_the_commit(file_ledger: RequestLedger) -> None:
    """Also when the answer comes in pieces; a background task runs afterwards, without the session."""
    seen: list[Any] = []

    async def pieces() -> Any:
        yield b"one"
        await in_session(lambda lent: lent.execute(insert(PAYMENTS).values(account="ann", amount=1)))
        yield b"two"

    async def afterwards() -> None:
        seen.append(payments(file_ledger.engine, "ann"))
        with pytest.raises(HandlerFault, match="no session is lent"):
            await in_session(lambda _lent: None)

    async def endpoint(_request: Any) -> Response:
        return StreamingResponse(pieces(), background=BackgroundTask(afterwards))

    streaming = service(file_ledger, endpoint)
    assert streaming.call(order()).body == b"onetwo"
    assert seen == [1]
    assert streaming.call(order()).body == b"onetwo"


@pytest.mark.parametrize(("effects", "again"), [("database", 200), ("external", 409)])
def test_a_cancelled_request_ends_as_a_failed_one(
    file_ledger: RequestLedger, effects: str, again: int
) -> None:
    """Its transaction is rolled back and its key is free, or its outcome is unknown."""
    started = asyncio.Event()
    hang = [True]

    async def endpoint(_request: Any) -> Response:
        started.set()
        if hang.pop():
            await asyncio.Event().wait()
        return Response(b"done")

    cancelled = service(file_ledger, endpoint, effects=effects)

    async def scenario() -> Reply:
        first = asyncio.create_task(cancelled.send(order()))
        await asyncio.wait_for(started.wait(), 30)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        hang.append(False)
        return await cancelled.send(order())

    assert asyncio.run(scenario()).status == again


def test_a_caller_that_leaves_early_is_not_served(file_ledger: RequestLedger) -> None:
    """Half a request is none."""
    app = ASGIService(pay, file_ledger, Rules(tenant=None)).app
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    headers = [(b"idempotency-key", b'"k-1"')]
    scope = {"type": "http", "method": "POST", "path": "/payments", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert payments(file_ledger.engine, "ann") == 0


def test_an_application_that_never_answers(file_ledger: RequestLedger) -> None:
    """Its server says so; the key is free."""

    async def silent(_scope: Any, _receive: Any, _send: Any) -> None:
        return None

    made = ASGIService(pay, file_ledger, Rules(tenant=None))
    made.app = IdempotentASGI(silent, file_ledger, Rules(tenant=None))
    with pytest.raises(AssertionError):
        made.call(order())
    assert ASGIService(pay, file_ledger, Rules(tenant=None)).call(order()).status == 201


def test_other_protocols_pass(file_ledger: RequestLedger) -> None:
    """Lifespan and websockets reach the application as they are."""
    seen = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    protected = IdempotentASGI(app, file_ledger, Rules(tenant=None))
    for kind in ("lifespan", "websocket"):
        asyncio.run(protected({"type": kind}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


def test_too_few_connections_are_refused(sqlite_database: str) -> None:
    """One connection cannot serve threads and transactions at once."""
    ledger = RequestLedger(make_engine(sqlite_database, pool_size=1), "shop-api")
    with pytest.raises(ConfigError, match="2 connections"):
        ASGIService(pay, ledger, Rules(tenant=None))
