"""The configuration as it is loaded: consumers with their chains, brokers and databases without passwords."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from oncemq.common.error_text import describe
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.dashboard.rendering import page
from oncemq.dashboard.site import Site
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.size import stored_bytes


def show(request: Request) -> Response:
    """Show it."""
    site: Site = request.app.state.site
    redact = site.plan.redact
    values = {
        "consumers": [_consumer(settled) for settled in site.loaded.consumers],
        "brokers": {
            name: redact(str(broker.url)) for name, broker in sorted(site.loaded.model.brokers.items())
        },
        "databases": list(_databases(site)),
        "warnings": [redact(str(warning)) for warning in site.loaded.warnings],
    }
    return page(request, "configuration.html", values, title="configuration")


def _consumer(settled: ConsumerSettings) -> dict[str, Any]:
    return {
        "name": settled.name,
        "topic": settled.topic,
        "broker": settled.broker,
        "group": settled.group,
        "handler": settled.handler_text,
        "effects": settled.effects.value,
        "key": settled.key,
        "identity": ", ".join(settled.identity),
        "version": settled.version,
        "strategies": [choice.name for choice in settled.strategies],
        "workers": settled.workers,
        "attempts": settled.retry.attempts,
        "keep": settled.keep,
        "breakers": [f"{rule.kind} > {rule.above:g}: {rule.action}" for rule in settled.breakers],
    }


def _databases(site: Site) -> Iterator[dict[str, Any]]:
    for engine in site.plan.engines:
        try:
            with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
                size: object = stored_bytes(connection)
        except SQLAlchemyError as error:
            size = site.plan.redact(describe(error))
        yield {"place": place(engine), "size": size}
