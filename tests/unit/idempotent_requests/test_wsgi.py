"""What only WSGI has: lazy bodies, write(), close(), input of unknown length."""

from io import BytesIO
from typing import Any

import pytest

from oncemq.idempotent_requests import IdempotentWSGI, RequestLedger, Rules
from support.apps.payments import Call, Reply, WSGIService, pay, payments


class Body:
    """A body that begins late, writes, and must be closed."""

    def __init__(self, start_response: Any) -> None:
        self.start_response = start_response
        self.closed = False

    def __iter__(self) -> Any:
        self.start_response("200 OK", [("X-Wrong", "1")])
        write = self.start_response("201 Created", [("X-Right", "1")], (None, None, None))
        write(b"written, ")
        yield b"yielded"

    def close(self) -> None:
        """Say goodbye."""
        self.closed = True


def call(ledger: RequestLedger, app: Any, environ: dict[str, Any] | None = None) -> Reply:
    """Send one request."""
    service = WSGIService(pay, ledger, Rules(tenant=None))
    service.app = IdempotentWSGI(
        lambda given, start: app({**given, **(environ or {})}, start), ledger, Rules(tenant=None)
    )
    return service.call(Call(b""))


def test_a_late_start_and_write_are_held_back(file_ledger: RequestLedger) -> None:
    """The last start_response counts, what was written comes first, the body is closed."""
    bodies = []

    def app(_environ: Any, start_response: Any) -> Body:
        bodies.append(Body(start_response))
        return bodies[-1]

    first, again = call(file_ledger, app), call(file_ledger, app)
    assert (first.status, first.body, first.headers) == (201, b"written, yielded", {"x-right": "1"})
    assert (again.body, again.headers["x-right"]) == (first.body, "1")
    assert [body.closed for body in bodies] == [True]


def test_an_application_that_never_starts(file_ledger: RequestLedger) -> None:
    """That is its error, and the key is free."""
    for _ in range(2):
        with pytest.raises(RuntimeError, match="start_response"):
            call(file_ledger, lambda _environ, _start: [b""])


@pytest.mark.parametrize(("marked", "paid"), [(True, 1), (False, 0)])
def test_a_body_of_unknown_length(file_ledger: RequestLedger, marked: bool, paid: int) -> None:
    """It is read if the server marks its end; else there is none, and no one waits for it."""
    service = WSGIService(pay, file_ledger, Rules(tenant=None))
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "HTTP_IDEMPOTENCY_KEY": "k-1",
        "wsgi.input": BytesIO(b'{"account": "ann", "amount": 1}'),
        "wsgi.input_terminated": marked,
    }
    if paid:
        list(service.app(environ, lambda *_: None))
    else:
        with pytest.raises(KeyError):
            list(service.app(environ, lambda *_: None))
    assert payments(file_ledger.engine, "ann") == paid


def test_an_answer_without_a_body_says_no_length(file_ledger: RequestLedger) -> None:
    """204 has neither, the first time and again."""

    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("204 No Content", [])
        return []

    replies = [call(file_ledger, app) for _ in range(2)]
    assert [reply.status for reply in replies] == [204, 204]
    assert all("content-length" not in reply.headers for reply in replies)


@pytest.mark.parametrize("length", ["9" * 5000, "0" * 5000 + "99999999999"])
def test_a_length_of_thousands_of_digits_is_too_long(file_ledger: RequestLedger, length: str) -> None:
    """It is answered as any body that is too long, and nothing is read or raised."""
    service = WSGIService(pay, file_ledger, Rules(tenant=None))
    said: list[str] = []
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "HTTP_IDEMPOTENCY_KEY": "k-1",
        "CONTENT_LENGTH": length,
        "wsgi.input": BytesIO(b"{}"),
    }
    list(service.app(environ, lambda status, *_: said.append(status)))
    assert said[0].startswith("413")
    assert payments(file_ledger.engine, "ann") == 0
