"""The ASGI app: which address shows what, and what becomes of failures."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from oncemq.common.error_text import describe
from oncemq.config.load import Loadable
from oncemq.dashboard.access import Access, Denied, Loopback
from oncemq.dashboard.pages import configuration, dead_letters, key, ledger, locks, overview
from oncemq.dashboard.parameters import WrongParameter
from oncemq.dashboard.protection import Form, Protection, read_form
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.errors import BrokerError, ConfigError, InfrastructureError, LedgerError, OnceMQError

_STATIC = Path(__file__).with_name("static")
_AWAY = (BrokerError, InfrastructureError, LedgerError, SQLAlchemyError)

Change = Callable[[Request, Form], Response]


def create_app(
    app: "str | Path | Sequence[str | Path] | Loadable",
    *,
    access: Access | None = None,
    allow_changes: bool = False,
) -> Starlette:
    """Return the page as an ASGI app, to be served, or mounted into yours by its `mount("/oncemq", …)`.

    Args:
        app: the app's files in order, `module:app`, or an `App`.
        access: who may see it: `Users`, `ProxyHeader`, or your own with a method `user(request)`, which returns a name
            or raises `Denied`; by default this machine only.
        allow_changes: whether pages may replay, delete, pause, retry and so on; each change is in the audit trail.

    Raises:
        ConfigError: the app is invalid.
    """
    site = Site(app, allow_changes=allow_changes)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(site.close)

    made = Starlette(
        routes=[
            Route("/", overview.show),
            Route("/api/overview", overview.data),
            Route("/pause", _changing(overview.pause), methods=["POST"]),
            Route("/resume", _changing(overview.resume), methods=["POST"]),
            Route("/key", key.show),
            Route("/dead-letters", dead_letters.listed),
            Route("/dead-letters/act", _changing(dead_letters.preview), methods=["POST"]),
            Route("/dead-letters/do", _changing(dead_letters.act), methods=["POST"]),
            Route("/dead-letters/body", dead_letters.body),
            Route("/dead-letters/one", dead_letters.show),
            Route("/jobs/{number:int}", dead_letters.job),
            Route("/jobs/{number:int}/stop", _changing(dead_letters.stop), methods=["POST"]),
            Route("/waiting", ledger.waiting),
            Route("/waiting/claim", _changing(ledger.answer), methods=["POST"]),
            Route("/waiting/outbox", _changing(ledger.decide), methods=["POST"]),
            Route("/locks", locks.show),
            Route("/audit", ledger.audit),
            Route("/configuration", configuration.show),
            Mount("/static", StaticFiles(directory=_STATIC), name="static"),
        ],
        middleware=[Middleware(Protection, access=access or Loopback())],
        exception_handlers={
            Denied: _denied,
            WrongParameter: _wrong,
            HTTPException: _http,
            OnceMQError: _failed,
            SQLAlchemyError: _failed,
        },
        lifespan=lifespan,
    )
    made.state.site = site
    return made


def _changing(change: Change) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a form: refused unless changes are allowed and the form is ours."""

    async def endpoint(request: Request) -> Response:
        site: Site = request.app.state.site
        if not site.allow_changes:
            raise Denied(403, "this page is read only: start it with --allow-changes")
        form = await read_form(request)
        site.forms.insist(request, form)
        return await run_in_threadpool(change, request, form)

    return endpoint


async def _denied(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, Denied) else 403
    return await run_in_threadpool(_said, request, str(error), status)


async def _wrong(request: Request, error: Exception) -> Response:
    return await run_in_threadpool(_said, request, str(error), 400)


async def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return await run_in_threadpool(_said, request, "", status)


async def _failed(request: Request, error: Exception) -> Response:
    status = 503 if isinstance(error, _AWAY) else 400 if isinstance(error, ConfigError) else 500
    site: Site = request.app.state.site
    return await run_in_threadpool(_said, request, site.plan.redact(describe(error)), status)


def _said(request: Request, text: str, status: int) -> Response:
    return page(request, "error.html", {"text": text, "status": status}, status=status, title="look at")
