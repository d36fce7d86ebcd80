"""A FastAPI app on PostgreSQL behind the middleware: what its author writes, and how each request may end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from sqlalchemy import Engine, insert
from sqlalchemy.orm import DeclarativeBase, Session

from oncemq import idempotent_requests as requests
from oncemq.errors import HandlerFault, RequestConflict, RequestInProgress
from oncemq.idempotent_requests import IdempotentASGI, RequestLedger, Rules, idempotent, in_session
from support.apps.payments import METADATA, PAYMENTS, payments
from support.database.ledgers import ledger_engine

DEADLINE = 30
Lent = Annotated[Session, Depends(requests.session)]


class Order(BaseModel):
    """What a caller wants."""

    account: str = "ann"
    amount: int = 5


class Base(DeclarativeBase):
    """The app's tables."""


class Payment(Base):
    """The table of payments as a mapped class."""

    __table__ = PAYMENTS


class Receipt(BaseModel):
    """What he is answered."""

    number: int


@pytest.fixture
def engine(postgresql_database: str) -> Iterator[Engine]:
    """A PostgreSQL database with all tables."""
    with ledger_engine(postgresql_database, METADATA) as engine:
        yield engine


@pytest.fixture
def ledger(engine: Engine, fresh: str) -> Iterator[RequestLedger]:
    """A ledger on the app's own engine."""
    ledger = RequestLedger(engine, fresh)
    yield ledger
    ledger.close()


def protected(ledger: RequestLedger, endpoint: Callable[..., Any]) -> IdempotentASGI:
    """Return an app with one endpoint behind the middleware."""
    api = FastAPI()
    api.post("/payments", status_code=201)(endpoint)
    return IdempotentASGI(api, ledger, Rules(tenant=None))


def take(order: Order, session: Lent) -> Receipt:
    """Take a payment."""
    taken = session.execute(insert(PAYMENTS).values(account=order.account, amount=order.amount))
    return Receipt(number=taken.inserted_primary_key[0])


async def post(app: Any, key: str | None = "k-1", *, raising: bool = False, **order: Any) -> httpx.Response:
    """Send one order."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=raising)
    headers = {} if key is None else {"Idempotency-Key": f'"{key}"'}
    async with httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=DEADLINE) as client:
        return await client.post("/payments", json=order, headers=headers)


def send(app: Any, key: str | None = "k-1", **order: Any) -> httpx.Response:
    """Send one order, and wait for its answer."""
    return asyncio.run(post(app, key, **order))


def is_stored(answer: httpx.Response) -> bool:
    """Return whether an answer was given before."""
    return answer.headers.get("idempotency-replayed") == "true"


def test_a_payment_is_taken_once(engine: Engine, ledger: RequestLedger) -> None:
    """A copy gets the stored answer, the same key with another order 422, none 400; FastAPI's own 422 is an answer, too."""
    app = protected(ledger, take)
    first, copy = send(app), send(app)
    assert (first.status_code, copy.json(), is_stored(copy)) == (201, first.json(), True)
    assert send(app, amount=6).json()["type"] == "urn:oncemq:idempotency:key-reused"
    assert send(app, None).status_code == 400
    assert [send(app, "k-2", amount="much").status_code for _ in range(2)] == [422, 422]
    assert payments(engine, "ann") == 1


def test_a_copy_meanwhile_is_told_to_come_again(engine: Engine, ledger: RequestLedger) -> None:
    """409 with Retry-After, in a problem; afterwards it gets the first one's answer."""
    running, may_end = threading.Event(), threading.Event()

    def slow(order: Order, session: Lent) -> Receipt:
        receipt = take(order, session)
        running.set()
        assert may_end.wait(DEADLINE)
        return receipt

    app = protected(ledger, slow)

    async def scenario() -> list[httpx.Response]:
        first = asyncio.create_task(post(app))
        assert await asyncio.to_thread(running.wait, DEADLINE)
        meanwhile = await post(app)
        may_end.set()
        return [meanwhile, await first, await post(app)]

    meanwhile, first, copy = asyncio.run(scenario())
    assert (meanwhile.status_code, meanwhile.headers["retry-after"]) == (409, "1")
    assert meanwhile.headers["content-type"] == "application/problem+json"
    assert (first.status_code, copy.json(), is_stored(copy)) == (201, first.json(), True)
    assert payments(engine, "ann") == 1


def test_an_async_endpoint_works_in_a_thread(engine: Engine, ledger: RequestLedger) -> None:
    """`await in_session(function)` is what AsyncSession.run_sync would be."""

    async def take_async(order: Order) -> Receipt:
        return await in_session(lambda session: take(order, session))

    app = protected(ledger, take_async)
    first, copy = send(app), send(app)
    assert (first.status_code, copy.json(), is_stored(copy)) == (201, first.json(), True)
    assert payments(engine, "ann") == 1


def test_a_session_on_the_event_loop_is_refused(engine: Engine, ledger: RequestLedger) -> None:
    """FastAPI makes the dependency in a thread, and hands it to the loop: the first statement there says what to write."""

    async def wrong(order: Order, session: Lent) -> Receipt:
        return take(order, session)

    with pytest.raises(HandlerFault, match="in_session"):
        asyncio.run(post(protected(ledger, wrong), raising=True))
    assert payments(engine, "ann") == 0
    assert send(protected(ledger, take)).status_code == 201


def test_adding_objects_on_the_event_loop_is_fine(engine: Engine, ledger: RequestLedger) -> None:
    """That is memory only: they are written at the commit, in a thread."""

    async def add(order: Order, session: Lent) -> str:
        session.add(Payment(account=order.account, amount=order.amount))
        return "added"

    app = protected(ledger, add)
    assert [send(app).json() for _ in range(2)] == ["added"] * 2
    assert payments(engine, "ann") == 1


@pytest.mark.parametrize("placed", ["around", "added"])
def test_an_exception_undoes_everything(engine: Engine, ledger: RequestLedger, placed: str) -> None:
    """500, nothing is written, the key is free: around the app, and as `add_middleware` places it."""
    failures = [ZeroDivisionError("not today")]

    def failing(order: Order, session: Lent) -> Receipt:
        receipt = take(order, session)
        if failures:
            raise failures.pop()
        return receipt

    api = FastAPI()
    api.post("/payments", status_code=201)(failing)
    rules = Rules(tenant=None)
    app: Any = IdempotentASGI(api, ledger, rules)
    if placed == "added":
        api.add_middleware(IdempotentASGI, ledger=ledger, rules=rules)
        app = api
    assert send(app).status_code == 500
    assert payments(engine, "ann") == 0
    first, copy = send(app), send(app)
    assert (first.status_code, copy.json(), is_stored(copy)) == (201, first.json(), True)
    assert payments(engine, "ann") == 1


def test_a_refusal_is_an_answer(engine: Engine, ledger: RequestLedger) -> None:
    """HTTPException(402) is stored with what was written; after `rollback()` nothing is, and the key is free."""
    undo = [False, True]

    def refusing(order: Order, session: Lent) -> Receipt:
        take(order, session)
        if undo.pop(0):
            session.rollback()
        raise HTTPException(402, "no money")

    app = protected(ledger, refusing)
    first, copy = send(app), send(app)
    assert (first.status_code, copy.json(), is_stored(copy)) == (402, {"detail": "no money"}, True)
    assert payments(engine, "ann") == 1
    assert send(app, "k-2").status_code == 402
    assert payments(engine, "ann") == 1


def pieces(order: Order, fail: list[Exception]) -> AsyncIterator[bytes]:
    """Return an answer in pieces that writes between them."""

    async def stream() -> AsyncIterator[bytes]:
        yield b"taking "
        await in_session(lambda session: take(order, session))
        if fail:
            raise fail.pop()
        yield b"taken"

    return stream()


def test_a_streamed_answer_is_held_back_and_kept(engine: Engine, ledger: RequestLedger) -> None:
    """What fails in the middle has sent nothing and left nothing; what ends well is kept whole."""
    fail: list[Exception] = [ZeroDivisionError("in the middle")]

    def streaming(order: Order) -> StreamingResponse:
        return StreamingResponse(pieces(order, fail))

    app = protected(ledger, streaming)
    broken = send(app)
    assert (broken.status_code, broken.content) == (500, b"")
    assert payments(engine, "ann") == 0
    first, copy = send(app), send(app)
    assert (first.content, copy.content, is_stored(copy)) == (b"taking taken", b"taking taken", True)
    assert payments(engine, "ann") == 1


class Caller:
    """A caller who leaves when he is told to, as a server tells its app.

    Attributes:
        heard: what was sent to him.
    """

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self.heard: list[Any] = []
        self._sent = False

    async def receive(self) -> Any:
        """Return the request, and then that he has left."""
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": b'{"account":"ann","amount":5}', "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Hear it."""
        self.heard.append(message)

    async def post(self, app: Any) -> None:
        """Send one order; the bytes are those of `post`."""
        headers = [(b"idempotency-key", b'"k-1"'), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/payments",
            "raw_path": b"/payments",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "server": ("shop", 80),
        }
        await app(scope, self.receive, self.send)


def test_a_caller_who_leaves_gets_his_answer_when_he_comes_back(
    engine: Engine, ledger: RequestLedger
) -> None:
    """The endpoint is not stopped by that – no one listens for it while it runs: its answer is kept."""
    running, may_end = threading.Event(), threading.Event()

    def slow(order: Order, session: Lent) -> Receipt:
        running.set()
        assert may_end.wait(DEADLINE)
        return take(order, session)

    app = protected(ledger, slow)

    async def scenario() -> httpx.Response:
        caller = Caller()
        left = asyncio.create_task(caller.post(app))
        assert await asyncio.to_thread(running.wait, DEADLINE)
        caller.leaves.set()
        may_end.set()
        await left
        return await post(app, account="ann", amount=5)

    copy = asyncio.run(scenario())
    assert (copy.status_code, is_stored(copy), payments(engine, "ann")) == (201, True, 1)


def test_a_stream_whose_caller_leaves_is_undone(engine: Engine, ledger: RequestLedger) -> None:
    """Servers stop it in the middle: nothing of it lasts, and a copy is carried out."""
    endless, written = [True, False], asyncio.Event()

    def streaming(order: Order) -> StreamingResponse:
        async def stream() -> AsyncIterator[bytes]:
            await in_session(lambda session: take(order, session))
            yield b"taken"
            if endless.pop(0):
                written.set()
                await asyncio.Event().wait()

        return StreamingResponse(stream())

    app = protected(ledger, streaming)

    async def scenario() -> httpx.Response:
        caller = Caller()
        left = asyncio.create_task(caller.post(app))
        await asyncio.wait_for(written.wait(), DEADLINE)
        caller.leaves.set()
        await asyncio.wait_for(left, DEADLINE)
        assert (caller.heard, payments(engine, "ann")) == ([], 0)
        return await post(app, account="ann", amount=5)

    copy = asyncio.run(scenario())
    assert (copy.content, is_stored(copy), payments(engine, "ann")) == (b"taken", False, 1)


def test_a_function_behind_an_endpoint_takes_effect_once(engine: Engine, ledger: RequestLedger) -> None:
    """`@idempotent`, its refusals made answers by two exception handlers: 409 meanwhile, 422 for other content."""
    running, may_end = threading.Event(), threading.Event()

    @idempotent(ledger, key=lambda order: f"order of {order.account}", name="book")
    def book(order: Order, session: Session) -> Receipt:
        receipt = take(order, session)
        running.set()
        assert may_end.wait(DEADLINE)
        return receipt

    api = FastAPI()

    @api.post("/payments", status_code=201)
    def endpoint(order: Order) -> Receipt:
        return book(order)

    @api.exception_handler(RequestInProgress)
    def in_progress(_request: Any, error: RequestInProgress) -> JSONResponse:
        seconds = str(round(error.retry_after.total_seconds()))
        return JSONResponse({"detail": str(error)}, 409, {"Retry-After": seconds})

    @api.exception_handler(RequestConflict)
    def conflict(_request: Any, error: RequestConflict) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    async def scenario() -> list[httpx.Response]:
        first = asyncio.create_task(post(api, None))
        assert await asyncio.to_thread(running.wait, DEADLINE)
        meanwhile, other = await post(api, None), await post(api, None, amount=6)
        may_end.set()
        return [meanwhile, other, await first, await post(api, None)]

    meanwhile, other, first, copy = asyncio.run(scenario())
    assert (meanwhile.status_code, meanwhile.headers["retry-after"], other.status_code) == (409, "1", 422)
    assert (first.status_code, copy.json()) == (201, first.json())
    assert payments(engine, "ann") == 1
