"""Options of a topic through a proxy: those of every RocketMQ driver, and two that only this one has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rocketmq.names import TopicOptions, read_topic
from oncemq_adapters.rocketmq_client.names import RETRY_PREFIX

OWN = ("filter", "message_type")
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


@dataclass(frozen=True, slots=True)
class ProxiedTopic:
    """A topic's options, understood.

    Args:
        options: what all drivers understand.
        filter: only messages whose properties this SQL92 expression selects; empty = all.
        message_type: what the topic may hold if it is made here.
    """

    options: TopicOptions
    filter: str
    message_type: str

    @property
    def topic(self) -> str:
        """The topic's name in the app."""
        return self.options.topic

    @property
    def name(self) -> str:
        """The topic's real name."""
        return self.options.name

    @property
    def fifo(self) -> bool:
        """Whether messages of a key come strictly one after the other."""
        return self.options.fifo


def parse_proxied(topic: str, options: Mapping[str, Any], namespace: str) -> ProxiedTopic:
    """Return the topic's options.

    Raises:
        ConfigError: they cannot work.
    """
    parsed, problems = read_proxied(topic, options, namespace)
    if problems:
        raise ConfigError(problems)
    return parsed


def read_proxied(
    topic: str, options: Mapping[str, Any], namespace: str
) -> tuple[ProxiedTopic, list[Problem]]:
    """Return the topic's options as far as they can be understood, and their errors."""
    own = {name: options[name] for name in OWN if name in options}
    common, problems = read_topic(
        topic, {name: value for name, value in options.items() if name not in own}, namespace
    )
    reader = OptionReader(own, OWN, "RocketMQ topic option")
    parsed = ProxiedTopic(
        common,
        reader.text("filter", "") or "",
        reader.choice("message_type", "FIFO" if common.fifo else "NORMAL", TYPES),
    )
    if "allocation" in options:
        reader.complain(
            "allocation",
            "no member owns queues behind a proxy, so there is nothing to divide",
            "leave it out",
        )
    if parsed.filter and common.tags:
        reader.complain(
            "filter", "a topic is filtered by tags or by an expression, not by both", "leave out one"
        )
    return parsed, [*problems, *reader.problems]


def leased_retry_topic(group: str, topic: str) -> str:
    """Return the place from which a proxy gives a group its retries of a topic, by the real names."""
    return f"{RETRY_PREFIX}{group}_{topic}"
