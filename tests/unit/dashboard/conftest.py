"""An app on the embedded broker and SQLite, and a browser that looks at its page."""

import asyncio
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from oncemq.dashboard import Access, create_app
from oncemq.dashboard.site import Site
from support.apps.command_line import CommandLine

URL = "http://127.0.0.1:8088"


class Browser:
    """Sends requests to an ASGI app from a machine, and keeps cookies."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._transport = httpx.ASGITransport(app, client=(host, 50_000))
        self._cookies = httpx.Cookies()

    def get(self, address: str, **options: Any) -> httpx.Response:
        """Return the answer to GET."""
        return asyncio.run(self._ask("GET", address, **options))

    def post(self, address: str, **options: Any) -> httpx.Response:
        """Return the answer to POST."""
        return asyncio.run(self._ask("POST", address, **options))

    async def _ask(self, method: str, address: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=self._transport, base_url=URL, cookies=self._cookies
        ) as client:
            answer = await client.request(method, address, **options)
            self._cookies.update(client.cookies)
            return answer


class Visitor:
    """Looks at the page of an app, and sends its forms."""

    def __init__(
        self,
        line: CommandLine,
        *,
        allow_changes: bool = True,
        access: Access | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.line = line
        app = create_app(line.app, allow_changes=allow_changes, access=access)
        self.site: Site = app.state.site
        self.client = Browser(app, host)

    def see(self, address: str, status: int = 200, **headers: str) -> str:
        """Return a page."""
        answer = self.client.get(
            address, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        assert answer.status_code == status, answer.text
        return answer.text

    def send(self, address: str, fields: dict[str, str | list[str]], **headers: str) -> httpx.Response:
        """Send a form with the token of the page that was seen last."""
        token = re.search(r'name="form_token" value="(\w+)"', self.see("/dead-letters") + self.see("/"))
        given = {"form_token": token.group(1) if token else "", **fields}
        return self.client.post(
            address, data=given, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    def keys(self, address: str) -> list[str]:
        """Return the keys of the dead letters on a page, in order."""
        return [
            unescape(found) for found in re.findall(r'/dead-letters/one\?[^"]*">([^<]*)<', self.see(address))
        ]


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Return an app with its ledger."""
    line = CommandLine(tmp_path)
    line.create_tables()
    return line


@pytest.fixture
def visitor(line: CommandLine) -> Iterator[Visitor]:
    """Return a visitor who may change things."""
    visitor = Visitor(line)
    yield visitor
    visitor.site.close()


@pytest.fixture
def reader(line: CommandLine) -> Iterator[Visitor]:
    """Return one who may not."""
    reader = Visitor(line, allow_changes=False)
    yield reader
    reader.site.close()
