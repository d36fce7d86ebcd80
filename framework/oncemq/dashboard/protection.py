"""Protects every answer: access, headers that browsers obey, and forms that only this page's own pages can send."""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncemq.dashboard.access import Access, Denied

COOKIE: Final = "oncemq_form"
FIELD: Final = "form_token"
MAX_FORM: Final = 64 * 1024

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers then send the page's own forms with `Origin: null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Protection:
    """Asks `access` before anything is answered, and adds headers to each answer.

    Args:
        app: the page.
        access: who may see it; the name is in `request.state.user` afterwards.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI wants it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers[name] = text
            await send(message)

        try:
            user = self._access.user(HTTPConnection(scope))
        except Denied as denied:
            asks = (
                {"www-authenticate": 'Basic realm="OnceMQ", charset="UTF-8"'} if denied.status == 401 else {}
            )
            await PlainTextResponse(denied.text + "\n", denied.status, asks)(scope, receive, guarded)
            return
        scope.setdefault("state", {})["user"] = user
        await self._app(scope, receive, guarded)


class Forms:
    """Tokens by which forms of this process are known: a value in a cookie, and its signature in the form."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def cookie(self, request: Request) -> str:
        """Return the request's own value, or a new one."""
        found = request.cookies.get(COOKIE, "")
        return found if len(found) == 43 else secrets.token_urlsafe(32)

    def token(self, cookie: str) -> str:
        """Return what a form must carry."""
        return hmac.digest(self._secret, cookie.encode(), "sha256").hex()

    def insist(self, request: Request, form: Mapping[str, str]) -> None:
        """Return if the form is one of ours.

        Raises:
            Denied: it is not.
        """
        cookie = request.cookies.get(COOKIE, "")
        if not cookie or not hmac.compare_digest(self.token(cookie).encode(), form.get(FIELD, "").encode()):
            raise Denied(403, "this form is not of this page, or the page was restarted: load it again")
        if not _same_origin(request.headers):
            raise Denied(403, "this form was sent by another site")


def _same_origin(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


Form = Mapping[str, str]
Reads = Callable[[Request], Awaitable[Form]]


async def read_form(request: Request) -> Form:
    """Return a form's fields; of a name that occurs several times the values, one a line.

    Raises:
        Denied: it is too large, or no form.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            raise Denied(413, "the form is too large")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=2000
        )
    except ValueError:
        raise Denied(400, "this is no form") from None
    found: dict[str, str] = {}
    for name, text in pairs:
        found[name] = f"{found[name]}\n{text}" if name in found else text
    return found
