"""Makes pages of templates: everything escaped, unprintable characters visible, long texts cut."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from oncemq.common.durations import format_duration
from oncemq.common.redaction import escape
from oncemq.dashboard.protection import COOKIE as FORM_COOKIE
from oncemq.dashboard.site import Site
from oncemq.dashboard.texts import COOKIE, LANGUAGES, language_of, translator

MAX_SHOWN: Final = 300
"""Characters of a text in a table."""
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def shown(value: Any, most: int = MAX_SHOWN) -> str:
    """Return a value for people: on one line, unprintable characters visible, cut at `most`."""
    if value is None or value == "":
        return "–"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = escape(str(value))
    return text if len(text) <= most else f"{text[:most]} …"


def percent(value: float | None) -> str:
    """Return a share for people."""
    return "–" if value is None else f"{100 * value:.1f} %"


_TEMPLATES.filters |= {"shown": shown, "percent": percent, "duration": format_duration}


def page(
    request: Request, template: str, values: Mapping[str, Any], *, status: int = 200, title: str
) -> Response:
    """Return a page.

    Args:
        request: what is answered.
        template: its file's name.
        values: for the template.
        status: of the answer.
        title: the name of its heading's text.
    """
    site: Site = request.app.state.site
    wanted = request.query_params.get("lang")
    language = language_of(request.headers.get("accept-language", ""), wanted or request.cookies.get(COOKIE))
    cookie = site.forms.cookie(request)
    text = _TEMPLATES.get_template(template).render(
        **values,
        t=translator(language),
        language=language,
        languages=LANGUAGES,
        root=request.scope.get("root_path", ""),
        here=request.url.path,
        app=site.plan.name,
        user=request.state.user,
        allow_changes=site.allow_changes,
        form_token=site.forms.token(cookie),
        title=title,
        now=datetime.now(UTC),
    )
    answer = HTMLResponse(text, status)
    path = request.scope.get("root_path", "") or "/"
    if cookie != request.cookies.get(FORM_COOKIE):
        answer.set_cookie(FORM_COOKIE, cookie, path=path, httponly=True, samesite="strict")
    if wanted in LANGUAGES:
        answer.set_cookie(COOKIE, str(wanted), path=path, max_age=365 * 86400, samesite="lax")
    return answer
