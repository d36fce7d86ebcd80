"""Idempotent requests for WSGI (PEP 3333): Flask, Django, Pyramid and others."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from io import BytesIO
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
from oncemq.idempotent_requests.handler_session import lending
from oncemq.idempotent_requests.http import Request
from oncemq.idempotent_requests.ledger import RequestLedger
from oncemq.idempotent_requests.problems import reason
from oncemq.idempotent_requests.rules import Rules

_MOST_DIGITS = 19
Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class IdempotentWSGI:
    """Wraps an application. An answer is sent only after its request has committed, so never stream through it.

    Args:
        app: the application.
        ledger: stores requests.
        rules: which requests are protected, and how.
    """

    def __init__(self, app: Application, ledger: RequestLedger, rules: Rules) -> None:
        self._app = app
        self._desk = Admission(ledger, rules)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        head = _head(environ)
        key = self._desk.look(head)
        if key is None:
            return self._app(environ, start_response)
        if isinstance(key, Answer):
            return _send(key, start_response)
        with request_span(key) as note:
            return self._serve(head, key, environ, start_response, note)

    def _serve(
        self, head: Request, key: str, environ: Environ, start_response: StartResponse, note: Note
    ) -> Iterable[bytes]:
        body = _read(environ, self._desk.rules.max_request)
        if body is None:
            note(OUTCOME, REFUSED)
            return _send(self._desk.too_large(), start_response)
        admitted = self._desk.admit(replace(head, body=body), key)
        if isinstance(admitted, Answer):
            note(OUTCOME, outcome_of(admitted))
            return _send(admitted, start_response)
        refused = self._desk.opened(admitted)
        if refused is not None:
            note(OUTCOME, REFUSED)
            return _send(refused, start_response)
        environ |= {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return self._carry_out(admitted, environ, start_response, note)

    def _carry_out(
        self, one: Try, environ: Environ, start_response: StartResponse, note: Note
    ) -> Iterable[bytes]:
        held = _HeldBack(self._desk.rules.max_answer)
        try:
            with lending(one):
                held.collect(self._app(environ, held.start_response))
            answer = held.answer()
        except BaseException:
            held.body.close()
            one.failed()
            raise
        try:
            instead = self._desk.answered(one, answer)
        except BaseException:
            held.body.close()
            raise
        note(OUTCOME, outcome_after(answer, instead))
        if instead is not None:
            held.body.close()
            return _send(instead, start_response)
        start_response(held.status, held.headers)
        return held.sent()


class _HeldBack:
    """An application's answer, held back until it is complete."""

    def __init__(self, most: int) -> None:
        self.body = CollectedBody(most)
        self.status = ""
        self.headers: list[tuple[str, str]] = []

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """The `start_response` of the application; nothing has been sent, so it may start again at any time."""
        del exc_info
        self.status, self.headers = status, headers
        return self.body.add

    def collect(self, parts: Iterable[bytes]) -> None:
        """Collect the whole body, and close its source."""
        close = getattr(parts, "close", None)
        with closing(parts) if close is not None else nullcontext():  # type: ignore[type-var]
            for part in parts:
                self.body.add(part)

    def answer(self) -> Answer:
        """Return the answer, to be stored."""
        if not self.status:
            raise RuntimeError("the application returned without calling start_response")
        return Answer(int(self.status.split(" ", 1)[0]), tuple(self.headers), self.body.kept())

    def sent(self) -> Iterator[bytes]:
        """Yield the body and release it."""
        with self.body:
            yield from self.body.parts()


def _send(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    status = answer.status or 500
    start_response(f"{status} {reason(status)}", sent_headers(answer))
    return [answer.body or b""]


def _head(environ: Environ) -> Request:
    headers = {
        name[5:].replace("_", "-").lower(): text for name, text in environ.items() if name.startswith("HTTP_")
    }
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers[name.replace("_", "-").lower()] = environ[name]
    # PEP 3333: the bytes of the path, each as one character.
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1", "replace")
    return Request(
        method=environ["REQUEST_METHOD"].upper(),
        path=path.decode(errors="surrogateescape"),
        query=environ.get("QUERY_STRING", ""),
        headers=headers,
        native=environ,
    )


def _read(environ: Environ, most: int) -> bytes | None:
    """Return the body; None if it is longer than `most`."""
    length = environ.get("CONTENT_LENGTH") or ""
    if length.isdigit() and length.isascii():
        # More digits than any length has: Python refuses to parse thousands of them as a number.
        if len(length.lstrip("0")) > _MOST_DIGITS or (size := int(length.lstrip("0") or "0")) > most:
            return None
        body: bytes = environ["wsgi.input"].read(size)
        return body
    if not environ.get("wsgi.input_terminated"):
        return b""  # without a length there is no body, unless the server marks its end
    body = environ["wsgi.input"].read(most + 1)
    return None if len(body) > most else body
