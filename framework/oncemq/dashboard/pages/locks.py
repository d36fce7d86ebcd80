"""The locks outside the database that are held for messages of each consumer, now."""

from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from oncemq.common.error_text import describe
from oncemq.contracts.arguments import Outside
from oncemq.contracts.strategy import Strategy
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.engine.plan import ConsumerPlan
from oncemq.errors import OnceMQError
from oncemq.operate.brokers import one_each

MOST: Final = 200
"""Locks of a consumer that are shown."""


def show(request: Request) -> Response:
    """List the locks by consumer; a Redis that is away hides only its own."""
    site: Site = request.app.state.site
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    cut = taken = False
    for consumer in one_each(site.plan.consumers):
        for using in _locking(consumer):
            taken = True
            try:
                found = using.locks(MOST)
            except OnceMQError as error:
                problems.append(f"{consumer.name}: {consumer.redact(describe(error))}")
                continue
            cut |= not found.complete
            rows += [
                {
                    "consumer": consumer.called,
                    "lock": held.name,
                    "kind": held.kind,
                    "owner": held.owner,
                    "left": "" if held.left is None else held.left,
                    "ends in": "" if held.ends_in is None else f"{held.ends_in:.1f} s",
                    "waiting": held.waiting or "",
                }
                for held in found.locks
            ]
    values = {"rows": rows, "problems": problems, "cut": cut, "taken": taken}
    return page(request, "locks.html", values, title="locks")


def _locking(consumer: ConsumerPlan) -> Iterator[Strategy | Outside]:
    """Yield the strategies and the handler's parameters that lock; the shards of a consumer share its locks."""
    strategies = consumer.strategies_on(0)
    yield from (strategy for strategy in strategies if type(strategy).locks is not Strategy.locks)
    yield from consumer.parts[0].handler.outside
