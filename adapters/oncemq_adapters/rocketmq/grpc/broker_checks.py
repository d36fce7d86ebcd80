"""Checks that a proxy and its brokers have what a consumer needs; each finding one line that says what to do."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.errors import REFUSALS
from oncemq_adapters.rocketmq.grpc.checks import NATIVE_ATTEMPTS
from oncemq_adapters.rocketmq.grpc.client import Receiver
from oncemq_adapters.rocketmq.grpc.errors import LEASE_REFUSED, SETTINGS_MISSING, surfaced
from oncemq_adapters.rocketmq.grpc.groups import is_other_kind, other_kind, refuse_others
from oncemq_adapters.rocketmq.grpc.producer import UNUSED_TOPIC
from oncemq_adapters.rocketmq.grpc.provisioning import Places
from oncemq_adapters.rocketmq.grpc.settings import Settings
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import Inventory, take_stock
from oncemq_adapters.rocketmq.remoting.broker_checks import (
    batch_queues,
    group_switches,
    limits,
    message_types,
    whereabouts,
    without_timer,
)
from oncemq_adapters.rocketmq.remoting.operations import Operations

_TRIES = 3
"""Proxies may need a moment for a client's settings, and say the same of a topic that is not there."""


class _Prober(Receiver):
    def _receive_req(self, *arguments: Any, **named: Any) -> Any:
        # A proxy looks at the lease before it looks for the topic, so nothing is ever taken.
        request = super()._receive_req(*arguments, **named)
        request.message_queue.topic.name = UNUSED_TOPIC
        return request


def refused_lease(settings: Settings, topic: ProxiedTopic) -> BrokerError | None:
    """Return how the proxy refuses the lease; None if it does not.

    Args:
        settings: with the lease.
        topic: any that exists; a client without one is not served.

    Raises:
        BrokerError: the proxy cannot be asked.
    """
    prober = _Prober(settings, UNUSED_TOPIC, topic)
    try:
        prober.start()
        answer = _answer(prober, settings)
    except Exception as error:
        raise surfaced(error, settings.shown) from error
    finally:
        prober.shutdown()
    return answer if getattr(answer, "code", 0) == LEASE_REFUSED else None


def _answer(prober: Receiver, settings: Settings) -> BrokerError | None:
    error = None
    for _ in range(_TRIES):
        try:
            prober.take(1)
        except Exception as raised:
            error = surfaced(raised, settings.shown)
            if getattr(error, "code", 0) != SETTINGS_MISSING:
                break
            time.sleep(0.2)
    return error


def examine(
    settings: Settings,
    places: Places,
    desk: Operations | None,
    facts: ConsumerFacts,
    topic: ProxiedTopic,
    group: str,
) -> Iterator[Problem]:
    """Yield what is missing, or differs from the consumer's needs.

    Args:
        settings: of the proxy.
        places: which topics there are.
        desk: connected over the remoting protocol; None = no name servers are given, and topics are all that is seen.
        facts: about the consumer.
        topic: what is declared about its topic.
        group: by its real name.
    """
    for error in places.missing(topic, group):
        yield Problem(str(error), where="topic.topic_name")
    if places.exists(topic.name):
        refused = refused_lease(settings, topic)
        if refused is not None:
            yield Problem(str(refused), where="broker.lease")
    if desk is None:
        return
    names, _ = whereabouts(desk, topic.options)
    stock = take_stock(desk.brokers, names, topic.name, group)
    yield from message_types(stock, topic.options, Severity.ERROR)
    yield from batch_queues(stock, topic.options)
    yield from _declared_type(stock, topic, declared="message_type" in facts.options)
    yield from group_switches(stock, group)
    yield from _kind(desk, stock, topic, group)
    yield from _tries(stock, facts, group)
    yield from _timers(stock, facts)
    yield from limits(stock, facts)


def _declared_type(stock: Sequence[Inventory], topic: ProxiedTopic, *, declared: bool) -> Iterator[Problem]:
    others = sorted({row.message_type for row in stock} - {topic.message_type, "MIXED", ""})
    if declared and others:
        yield Problem(
            f"message_type {topic.message_type} is declared, but topic {topic.name!r} is of type {', '.join(others)}: the "
            "proxy takes no other messages for it",
            f"write what it is, or run `mqadmin updateTopic -c <cluster> -t {topic.name} -a "
            f"+message.type={topic.message_type}`",
            "topic.message_type",
        )


def _kind(desk: Operations, stock: Sequence[Inventory], topic: ProxiedTopic, group: str) -> Iterator[Problem]:
    if any(row.group is not None and is_other_kind(row.group, fifo=topic.fifo) for row in stock):
        yield Problem(str(other_kind(group, fifo=topic.fifo)), where="group")
    try:
        refuse_others(desk, group)
    except REFUSALS as error:
        yield Problem(str(error), where="group")


def _tries(stock: Sequence[Inventory], facts: ConsumerFacts, group: str) -> Iterator[Problem]:
    for row in stock:
        most = (row.group or {}).get("retryMaxTimes", NATIVE_ATTEMPTS)
        if most < facts.attempts:
            yield Problem(
                f"{row.broker} gives up on a message of group {group!r} after {most} deliveries of its own, without the "
                f"cause, while this consumer may try {facts.attempts} times",
                f"run `mqadmin updateSubGroup -c <cluster> -g {group} -r {facts.attempts}`, or lower attempts",
                "retry.attempts",
                Severity.WARNING,
            )


def _timers(stock: Sequence[Inventory], facts: ConsumerFacts) -> Iterator[Problem]:
    brokers = without_timer(stock)
    if brokers and facts.attempts > 1:
        yield Problem(
            f"no timer wheel on {', '.join(brokers)}: the proxy refuses delayed messages, so nothing can be retried",
            "set timerWheelEnable=true in its broker.conf",
            "retry",
        )
