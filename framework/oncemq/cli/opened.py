"""Brokers for commands that consume nothing: connected for a moment, to publish or to look after dead letters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click

from oncemq.adapter import Adapter
from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.ledger import probe, schema, shards
from oncemq.ledger.server_clock import LedgerClock
from oncemq.registry import did_you_mean
from oncemq.run.plan import AppPlan, ConsumerPlan

CLOSE_WITHIN = timedelta(seconds=5)


def chosen_consumers(plan: AppPlan, name: str | None) -> Sequence[ConsumerPlan]:
    """Return the consumer called `name`, or all of them.

    Raises:
        ConfigError: there is no such consumer.
    """
    if name is None:
        return plan.consumers
    found = [consumer for consumer in plan.consumers if consumer.name == name]
    if not found:
        known = [consumer.name for consumer in plan.consumers]
        raise ConfigError([f"unknown consumer {name!r}{did_you_mean(name, known)}"])
    return found


def by_broker(consumers: Sequence[ConsumerPlan]) -> Mapping[str, Sequence[ConsumerPlan]]:
    """Return the consumers of each broker, for an adapter lives once: it is opened and closed for all of them."""
    brokers = dict.fromkeys(consumer.broker for consumer in consumers)
    return {name: [consumer for consumer in consumers if consumer.broker == name] for name in brokers}


def opened(plan: AppPlan) -> None:
    """Make sure that the app's databases answer, each with the ledger and the keys that it had before.

    Within a command, their connections are closed when it ends.

    Raises:
        InfrastructureError: one does not answer.
        LedgerError: one refuses us, or is not what it was.
    """
    command = click.get_current_context(silent=True)
    for engine in plan.engines:
        if command is not None:
            command.call_on_close(engine.dispose)
        probe.prove(engine)
        schema.ensure(engine)
        if isinstance(plan.clock, LedgerClock):
            plan.clock.measure(engine)
    shards.ensure(plan.engines, plan.name, plan.layout)


def opened_ledger(files: Sequence[Path], without: str) -> AppPlan:
    """Return the app of `files`, whose databases answer.

    Args:
        files: the app's, in order.
        without: what follows for an app that has no database.

    Raises:
        ConfigError: the app is wrong, or has no database.
        InfrastructureError, LedgerError: as `opened`.
    """
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([f"the app has no database, so it {without}"])
    opened(plan)
    return plan


@contextmanager
def prepared(plan: AppPlan, broker: str, consumers: Sequence[ConsumerPlan]) -> Iterator[Adapter]:
    """Lend the adapter of `broker`, connected, with everything there that these consumers need.

    Raises:
        BrokerUnavailable: no connection.
        BrokerRefused: wrong credentials, or something exists and is declared differently.
    """
    adapter = plan.adapters[broker]
    try:
        adapter.prepare([consumer.subscription for consumer in consumers])
        yield adapter
    finally:
        adapter.close(grace=CLOSE_WITHIN)
