"""The overview: every consumer, outbox, processes, and what an operator should look at; pause and resume."""

import json
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from oncemq.dashboard.parameters import text
from oncemq.dashboard.protection import Form
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.operate import pausing
from oncemq.operate.auditing import Operator
from oncemq.operate.brokers import chosen_consumers
from oncemq.operate.overview import record, state


def show(request: Request) -> Response:
    """Show the overview; with `part=1` only what changes, for the page's script."""
    site: Site = request.app.state.site
    found = site.overview()
    rows = [{**row, "state": state(row, found)} for row in found.consumers]
    template = "overview_part.html" if request.query_params.get("part") else "overview.html"
    return page(request, template, {"found": found, "rows": rows}, title="overview")


def data(request: Request) -> Response:
    """Return the overview as JSON, as `oncemq top --once --json` prints it."""
    site: Site = request.app.state.site
    return Response(json.dumps(record(site.overview()), default=_jsonable), media_type="application/json")


def pause(request: Request, form: Form) -> Response:
    """Pause a consumer in all processes."""
    site: Site = request.app.state.site
    operator = Operator(request.state.user, text(form, "why"))
    pausing.pause(site.plan, chosen_consumers(site.plan, text(form, "consumer")), operator)
    return home(request)


def resume(request: Request, form: Form) -> Response:
    """End an operator's pause."""
    site: Site = request.app.state.site
    pausing.resume(
        site.plan, chosen_consumers(site.plan, text(form, "consumer")), Operator(request.state.user)
    )
    return home(request)


def home(request: Request) -> Response:
    """Return to the overview, read once more."""
    site: Site = request.app.state.site
    site.forget_overview()
    return RedirectResponse(request.scope.get("root_path", "") + "/", 303)


def _jsonable(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
