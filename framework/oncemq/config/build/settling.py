"""Finds the broker of each topic, and the settings of each consumer."""

from collections.abc import Mapping, Sequence

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.build.topics import check_topic_names
from oncemq.config.model.app_model import BROADCAST, AppModel, Topic
from oncemq.config.model.consumer_settings import ConsumerSettings, settle
from oncemq.registry import did_you_mean


def brokers_of(model: AppModel, report: Reporter) -> dict[str, str]:
    """Return the broker of every topic that has one."""
    for name, topic in model.topics.items():
        check_topic_names(name, topic, report)
    brokers = {name: _broker_of(name, topic, model, report) for name, topic in model.topics.items()}
    return {name: broker for name, broker in brokers.items() if broker is not None}


def settle_all(model: AppModel, brokers: Mapping[str, str], report: Reporter) -> list[ConsumerSettings]:
    """Return the settings of all consumers, of those with several topics one for each; what is unknown is reported."""
    settled: list[ConsumerSettings] = []
    for name, consumer in model.consumers.items():
        found = []
        for topic in consumer.topic_names:
            if topic not in model.topics:
                report.at(
                    ("consumers", name, "topic" if consumer.topics is None else "topics"),
                    f"unknown topic {topic!r}{did_you_mean(topic, list(model.topics))}",
                    "" if model.topics else "declare it below topics:",
                )
                continue
            broker = brokers.get(topic)
            if broker is not None:
                found.append(settle(name, consumer, topic, broker, model))
        if consumer.topics is not None:
            _check_topics(found, report)
            if consumer.mode == BROADCAST:
                report.at(
                    ("consumers", name, "mode"),
                    f"{name}: mode: broadcast reads one topic: how far an instance has read is kept for one",
                    "write topic: and another consumer for each further topic",
                )
        settled += found
    return settled


def _check_topics(found: Sequence[ConsumerSettings], report: Reporter) -> None:
    """Report topics of one consumer in which one message would not be recognised as the same."""
    for first, other in ((found[0], other) for other in found[1:]):
        if [(each.name, each.options) for each in other.strategies] != [
            (each.name, each.options) for each in first.strategies
        ]:
            report.at(
                ("consumers", other.declared, "topics"),
                f"{other.declared}: its topics {first.topic!r} and {other.topic!r} have different strategies, and it is decided once "
                "whether a message takes effect",
                f"write strategies: at consumer {other.declared}",
            )
        if _parts(first) != _parts(other):
            report.at(
                ("consumers", other.declared, "topics"),
                f"{other.declared}: an identity has {_parts(first)} part(s) in topic {first.topic!r} and {_parts(other)} in "
                f"{other.topic!r}, so the same message would take effect once for each",
                f"write identity: at topics {first.topic} and {other.topic}, with as many parts in the same order; or version: at both",
            )
    if found and found[0].rate is not None and not found[0].rate.shared and len(found) > 1:
        report.at(
            found[0].path("rate"),
            f"{found[0].declared}: each topic has workers of its own, and this rate would hold for each of them",
            "write rate: {limit: 200/s, shared: true}, which is counted in the app's Redis for all together",
        )
    if found and found[0].concurrency is not None and len(found) > 1:
        report.at(
            found[0].path("concurrency"),
            f"{found[0].declared}: each topic has workers of its own, and this limit would hold for each of them",
            "leave concurrency: out, or write a consumer for each topic",
        )


def _parts(settled: ConsumerSettings) -> int:
    """Return the number of parts of an identity; without a declared one it is the key, and the version if there is one."""
    return len(settled.identity) or (1 if settled.version is None else 2)


def _broker_of(name: str, topic: Topic, model: AppModel, report: Reporter) -> str | None:
    if topic.broker is None and len(model.brokers) == 1:
        return next(iter(model.brokers))
    if topic.broker is None:
        report.at(
            ("topics", name),
            f"topic {name!r} does not say its broker",
            f"write broker: {' or '.join(model.brokers)}",
        )
        return None
    if topic.broker not in model.brokers:
        hint = did_you_mean(topic.broker, list(model.brokers))
        report.at(("topics", name, "broker"), f"unknown broker {topic.broker!r}{hint}")
        return None
    return topic.broker
