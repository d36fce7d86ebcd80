"""Idempotent requests for ASGI 3: Starlette, FastAPI, Litestar, Quart and others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import replace
from typing import Any

from oncemq.common.spans import Note
from oncemq.idempotent_requests.admission import (
    OUTCOME,
    REFUSED,
    Admission,
    outcome_after,
    outcome_of,
    request_span,
)
from oncemq.idempotent_requests.answer import Answer, sent_headers
from oncemq.idempotent_requests.attempt import Try
from oncemq.idempotent_requests.body import CollectedBody
from oncemq.idempotent_requests.capacity import Capacity
from oncemq.idempotent_requests.handler_session import lending
from oncemq.idempotent_requests.http import Request
from oncemq.idempotent_requests.ledger import RequestLedger
from oncemq.idempotent_requests.rules import Rules

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class IdempotentASGI:
    """Wraps an application, on asyncio. An answer is sent only after its request has committed, so never stream.

    Database calls run in threads. Code that runs after the answer is complete, such as background tasks, is
    not protected.

    Args:
        app: the application.
        ledger: stores requests.
        rules: which requests are protected, and how.
    """

    def __init__(self, app: Application, ledger: RequestLedger, rules: Rules) -> None:
        self._app = app
        self._desk = Admission(ledger, rules)
        self._capacity = Capacity(ledger.engine)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; only HTTP requests are handled."""
        head = _head(scope) if scope["type"] == "http" else None
        key = self._desk.look(head) if head is not None else None
        if head is None or key is None:
            await self._app(scope, receive, send)
        elif isinstance(key, Answer):
            await _send(key, send)
        else:
            with request_span(key) as note:
                await self._serve(head, key, (scope, receive, send), note)

    async def _serve(self, head: Request, key: str, wire: tuple[Scope, Receive, Send], note: Note) -> None:
        scope, receive, send = wire
        body = await _read(receive, self._desk.rules.max_request)
        if body is None:
            note(OUTCOME, REFUSED)
            await _send(self._desk.too_large(), send)
            return
        if isinstance(body, _Gone):
            return
        request = replace(head, body=body)
        admitted = await self._capacity.arrive(lambda: self._desk.admit(request, key), _undo)
        if isinstance(admitted, Answer):
            note(OUTCOME, outcome_of(admitted))
            await _send(admitted, send)
            return
        # Extensions are other ways to send an answer, bypassing us.
        inner = ({**scope, "extensions": {}}, _again(body, receive), send)
        if self._desk.rules.exposed:
            await self._carry_out(admitted, inner, _Turn(None), note)
        else:
            await self._carry_out(admitted, inner, _Turn(self._capacity.turn()), note)

    async def _carry_out(
        self, one: Try, wire: tuple[Scope, Receive, Send], turn: "_Turn", note: Note
    ) -> None:
        async def answered(answer: Answer) -> Answer | None:
            instead = await thread(lambda: desk.answered(one, answer))
            note(OUTCOME, outcome_after(answer, instead))
            return instead

        scope, receive, send = wire
        desk, thread = self._desk, self._capacity.work
        with CollectedBody(desk.rules.max_answer) as body:
            held = _HeldBack(body, send, answered, turn)
            try:
                await turn.take()
                refused = await thread(lambda: desk.opened(one))
                if refused is not None:
                    note(OUTCOME, REFUSED)
                    await _send(refused, send)
                    return
                held.called = True
                with lending(one):
                    await self._app(scope, receive, held.send)
            finally:
                if not held.settled:
                    await thread(one.failed if held.called else one.undone)
                turn.give_back()


class _Turn:
    """A place among the open transactions, taken and released once."""

    def __init__(self, places: asyncio.Semaphore | None) -> None:
        self._places, self._taken = places, False

    async def take(self) -> None:
        if self._places is not None:
            await self._places.acquire()
            self._taken = True

    def give_back(self) -> None:
        if self._places is not None and self._taken:
            self._taken = False
            self._places.release()


class _HeldBack:
    """Messages sent by an application, held back until complete and committed."""

    def __init__(
        self,
        body: CollectedBody,
        send: Send,
        answered: Callable[[Answer], Awaitable[Answer | None]],
        turn: _Turn,
    ) -> None:
        self._body, self._send, self._answered, self._turn = body, send, answered, turn
        self._start: Message = {}
        self.called = False
        self.settled = False

    async def send(self, message: Message) -> None:
        """The `send` that the application receives instead of the server's."""
        if self.settled:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = {name: value for name, value in message.items() if name != "trailers"}
        elif message["type"] == "http.response.body":
            self._body.add(message.get("body", b""))
            if not message.get("more_body", False):
                await self._complete()

    async def _complete(self) -> None:
        self.settled = True
        answer = Answer(self._start["status"], _texts(self._start.get("headers", ())), self._body.kept())
        try:
            instead = await self._answered(answer)
        finally:
            self._turn.give_back()
        if instead is not None:
            await _send(instead, self._send)
            return
        await self._send(self._start)
        for part in self._body.parts():
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


class _Gone:
    """The caller disconnected before the request was complete."""


def _undo(admitted: Answer | Try) -> None:
    if not isinstance(admitted, Answer):
        admitted.undone()


async def _send(answer: Answer, send: Send) -> None:
    headers = [
        (name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in sent_headers(answer)
    ]
    await send({"type": "http.response.start", "status": answer.status or 500, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body or b""})


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), text.decode("latin-1")) for name, text in headers)


def _head(scope: Scope) -> Request:
    headers: dict[str, str] = {}
    for name, text in _texts(scope["headers"]):
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {text}" if lower in headers else text
    return Request(
        method=scope["method"].upper(),
        path=scope["path"],
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=headers,
        native=scope,
    )


async def _read(receive: Receive, most: int) -> bytes | _Gone | None:
    """Return the whole body; None if it is longer than `most`."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return _Gone()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that repeats the body, and then passes the server's messages."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
