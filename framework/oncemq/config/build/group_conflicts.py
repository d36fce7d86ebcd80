"""Refuses consumers of one app that conflict: in the same group, or in each other's queues."""

from collections.abc import Mapping, Sequence

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import names_of
from oncemq.engine.plan import ConsumerPlan


def check_groups(consumers: Sequence[ConsumerSettings], report: Reporter) -> None:
    """Refuse two consumers in the same group: each would receive only some of the messages."""
    first: dict[tuple[str, str, str], str] = {}
    for settled in consumers:
        other = first.setdefault((settled.broker, settled.topic, settled.group), settled.name)
        if other != settled.name:
            report.at(
                settled.path("group"),
                f"{settled.name} and {other} share topic {settled.topic!r} in one group, so each gets only some messages",
                "give each consumer a group of its own",
            )


def check_former_names(consumers: Sequence[ConsumerSettings], report: Reporter) -> None:
    """Refuse former names that belong to another consumer: both would share one ledger."""
    formerly = {settled.declared: settled.formerly for settled in consumers}
    owners = {consumer: consumer for consumer in formerly}
    for consumer, names in formerly.items():
        for index, name in enumerate(names):
            other = owners.setdefault(name, consumer)
            path = ("consumers", consumer, "formerly", index)
            if name == consumer or name in names[:index]:
                report.at(path, f"{consumer} was formerly {name}, which says nothing", "leave it out")
            elif other != consumer:
                whose = "is a consumer of this app" if other == name else f"was formerly the name of {other}"
                report.at(
                    path,
                    f"{name} {whose}, and two consumers with one ledger take each other's messages for copies",
                    "name what this consumer alone was called",
                )


def check_private_names(
    consumers: Sequence[ConsumerPlan | None], adapters: Mapping[str, Adapter], report: Reporter
) -> None:
    """Refuse a consumer whose names collide with those that another consumer of the app needs."""
    taken: dict[tuple[str, str], tuple[ConsumerPlan, str]] = {}
    for consumer in consumers:
        if consumer is None or consumer.broker not in adapters:
            continue
        private = names_of(adapters[consumer.broker], consumer.broker, consumer.subscription)
        if private is None:
            continue
        for name, role in private.names.items():
            other, lies = taken.setdefault((private.broker, name), (consumer, role))
            if other is consumer or _same_group(other, consumer):
                continue
            report.at(
                ("consumers", consumer.called, "topics" if consumer.fans_in else "group"),
                f"the {role} of {consumer.name} and the {lies} of {other.name} would be in one place, {name}",
                "write another group:, or another name for the topic",
            )


def _same_group(consumer: ConsumerPlan, other: ConsumerPlan) -> bool:
    """Return whether this conflict has been refused already."""
    ours, theirs = consumer.subscription, other.subscription
    return (consumer.broker, ours.topic, ours.group) == (other.broker, theirs.topic, theirs.group)
