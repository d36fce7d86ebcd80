"""One business key: everything known about it, as a line in time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from oncemq.dashboard.parameters import text
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.operate import inspection
from oncemq.operate.inspection import Rows

MAX_LETTERS: Final = 10_000
"""Dead letters of a broker's consumers that a page looks at, the oldest first."""
_WHEN: Final[Mapping[str, str]] = {
    "history": "at",
    "processed": "processed_at",
    "changes": "at",
    "dead_letters": "dead_at",
    "final_failures": "at",
    "parked": "parked_at",
    "suspects": "crashed_at",
    "claims": "done_at",
    "requests": "changed_at",
    "outbox": "created_at",
    "delayed": "created_at",
    "states": "changed_at",
}
"""The time of each kind of row; rows without one are shown as the present state."""
_NOW: Final = ("paused", "strategies", "states", "claims", "parked", "delayed", "outbox")
"""Kinds that say what is, too, and not only what was."""
_PLAIN: Final = frozenset({"consumer", "key", "app", "action", "who", "outcome", "state", "published_at"})
"""Fields that stand in the title, or say nothing new."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the line.

    Args:
        at: when, aware.
        kind: of the row, such as `history`.
        title: what happened.
        consumer: whose; may be empty.
        fields: the rest.
        good: True for an effect, False for a failure, None for anything else.
    """

    at: datetime
    kind: str
    title: str
    consumer: str
    fields: Mapping[str, Any]
    good: bool | None


def show(request: Request) -> Response:
    """Show the key of the address; only a search field without one."""
    site: Site = request.app.state.site
    wanted = text(request.query_params, "key")
    found: Rows = {}
    problems: list[str] = []
    if wanted:
        with site.brokers() as plan:
            found, wrong = inspection.of_key(
                plan, wanted, plan.consumers, tell=problems.append, most_letters=MAX_LETTERS
            )
            problems += wrong
    values = {
        "key": wanted,
        "moments": sorted(_moments(found), key=lambda moment: moment.at),
        "present": {kind: found[kind] for kind in _NOW if found.get(kind)},
        "problems": problems,
    }
    return page(request, "key.html", values, title="timeline")


def _moments(found: Rows) -> Iterator[Moment]:
    for kind, when in _WHEN.items():
        for row in found.get(kind, ()):
            at = row.get(when)
            if isinstance(at, datetime):
                fields = {
                    name: value
                    for name, value in row.items()
                    if name not in _PLAIN and name != when and value not in (None, "")
                }
                yield Moment(
                    at, kind, _title(kind, row), str(row.get("consumer") or ""), fields, _good(kind, row)
                )


def _title(kind: str, row: Mapping[str, Any]) -> str:
    if kind == "history":
        return str(row["outcome"])
    if kind == "changes":
        return f"{row['action']} · {row['who']}"
    if kind == "states":
        return f"state {row['state']}"
    if kind in {"claims", "requests"}:
        return f"{kind[:-1]} {row['state']}"
    return {
        "processed": "applied",
        "dead_letters": "dead letter",
        "final_failures": "on_dead has taken effect",
        "parked": "parked",
        "suspects": "process died",
        "outbox": "published, not sent yet",
        "delayed": "published for later",
    }[kind]


def _good(kind: str, row: Mapping[str, Any]) -> bool | None:
    if kind == "processed" or row.get("outcome") == "applied":
        return True
    if kind in {"dead_letters", "suspects", "final_failures"} or row.get("outcome") in {
        "retry",
        "rejected",
        "conflict",
    }:
        return False
    return None
