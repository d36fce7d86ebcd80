"""Broker connections for operations: opened briefly, to publish or to manage dead letters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from oncemq.contracts.adapter import Adapter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError
from oncemq.registry import did_you_mean

CLOSE_WITHIN = timedelta(seconds=5)


def chosen_consumers(plan: AppPlan, name: str | None) -> Sequence[ConsumerPlan]:
    """Return the consumer called `name`, or all of them; of one with several topics all, or the one named, `count/orders`.

    Raises:
        ConfigError: there is no such consumer.
    """
    if name is None:
        return plan.consumers
    found = [consumer for consumer in plan.consumers if name in (consumer.name, consumer.called)]
    if not found:
        known = [consumer.name for consumer in plan.consumers]
        raise ConfigError([f"unknown consumer {name!r}{did_you_mean(name, known)}"])
    return found


def one_each(consumers: Sequence[ConsumerPlan]) -> Sequence[ConsumerPlan]:
    """Return one of each consumer, for what all of its topics share: records, claims, locks."""
    found: dict[str, ConsumerPlan] = {}
    for consumer in consumers:
        found.setdefault(consumer.scope, consumer)
    return tuple(found.values())


def by_broker(consumers: Sequence[ConsumerPlan]) -> Mapping[str, Sequence[ConsumerPlan]]:
    """Return the consumers of each broker, because an adapter is opened and closed once for all of them."""
    brokers = dict.fromkeys(consumer.broker for consumer in consumers)
    return {name: [consumer for consumer in consumers if consumer.broker == name] for name in brokers}


@contextmanager
def prepared(plan: AppPlan, broker: str, consumers: Sequence[ConsumerPlan]) -> Iterator[Adapter]:
    """Yield the adapter of `broker`, connected, with everything declared that these consumers need.

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
