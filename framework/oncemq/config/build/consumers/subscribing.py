"""Subscribes consumers to the messages of their routes alone, where their broker can select them."""

from collections.abc import Mapping
from dataclasses import replace

from oncemq.common.problems import Problem
from oncemq.config.build.shared_parts import Reporter, written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.routes_section import OTHERWISE, UNSUBSCRIBED
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import RouteSelecting
from oncemq.errors import ConfigError


def with_selection(
    settled: ConsumerSettings, adapters: Mapping[str, Adapter], report: Reporter
) -> ConsumerSettings:
    """Return the settings with the broker options that select a consumer's routes; reports where the broker cannot."""
    routes, adapter = settled.routes, adapters.get(settled.broker)
    if routes is None or routes.otherwise != UNSUBSCRIBED or adapter is None:
        return settled
    if not isinstance(adapter, RouteSelecting):
        report.at(
            settled.path(f"routes.{OTHERWISE}"),
            f"{settled.name}: {OTHERWISE}: {UNSUBSCRIBED} has the broker deliver the messages of the routes alone, which broker "
            f"{settled.broker!r} cannot",
            "write reject, ignore or a handler",
        )
        return settled
    try:
        options = dict(adapter.route_options(routes.by, tuple(routes.handlers), written(settled.options)))
    except ConfigError as error:
        for problem in error.problems:
            note = problem if isinstance(problem, Problem) else Problem(str(problem))
            report.note(
                settled.path(note.where or "routes"), Problem(f"{settled.name}: {note.text}", note.advice)
            )
        return settled
    by_route = {value: replace(route, options=options) for value, route in settled.by_route.items()}
    return replace(settled, options=options, by_route=by_route)
