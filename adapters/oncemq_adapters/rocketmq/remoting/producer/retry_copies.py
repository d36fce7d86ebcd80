"""Copies of a message that is sent on: a retry of its group, or a dead letter, as Java members expect them."""

import time
from collections.abc import Mapping
from datetime import timedelta

from oncemq.contracts.adapter import ParkedDeadLetter
from oncemq.message import headers as names
from oncemq_adapters.rocketmq.properties import (
    by_stranger,
    check_size,
    first_id,
    fits,
    for_burial,
    for_next_hop,
    for_replay,
)
from oncemq_adapters.rocketmq.sealed_copies import sealed
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.properties import (
    ATTEMPTS,
    DEAD_ORIGIN_ID,
    DEAD_ORIGIN_TOPIC,
    MOST_ATTEMPTS,
    ORIGIN_ID,
    ORIGIN_TOPIC,
    TAGS,
)
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage

REMOVED = f"{names.PREFIX}removed"
"""The tag of marks among dead letters: what they name is there no more."""
UNLIMITED = 1_000_000
"""Tries after which a broker would make a dead letter by itself; the retry policy is ours."""


def origin_of(stored: StoredMessage) -> str:
    """Return the topic that a message was first published to; empty if it is unknown."""
    if not stored.topic.startswith("%"):
        return stored.topic
    return stored.properties.get(ORIGIN_TOPIC) or stored.properties.get(DEAD_ORIGIN_TOPIC) or ""


def believed(stored: StoredMessage) -> Mapping[str, str]:
    """Return the properties, those of a stranger without what only brokers and groups write."""
    if stored.ours or stored.topic.startswith("%"):
        return stored.properties
    return by_stranger(stored.properties)


def retry_copy(
    stored: StoredMessage, group: str, broker: str, headers: Mapping[str, str], delay: timedelta
) -> Outgoing:
    """Return the copy that comes back to the group after the delay.

    Raises:
        BrokerRefused: the headers are too large.
    """
    before = stored.attempts if stored.topic.startswith("%") else 0
    attempts = names.attempt_of(headers) - 1 if names.ATTEMPT in headers else before
    return _copy(stored, group, broker, for_next_hop(believed(stored), headers), attempts, delay)


def dead_copy(stored: StoredMessage, group: str, broker: str, headers: Mapping[str, str]) -> Outgoing:
    """Return the copy that becomes a dead letter: a retry beyond its limit, for which the broker makes the topic.

    Raises:
        BrokerRefused: the headers are too large.
    """
    added = {
        DEAD_ORIGIN_TOPIC: origin_of(stored),
        DEAD_ORIGIN_ID: first_id(believed(stored)) or "",
    }
    properties = for_next_hop(believed(stored), headers) | {
        name: text for name, text in added.items() if text
    }
    if properties.get(TAGS) == REMOVED:
        # It would pass for a mark of the group's own.
        del properties[TAGS]
    copy = _copy(stored, group, broker, properties, stored.attempts + 1, timedelta(0))
    copy.most_attempts = 0
    copy.ordered = True
    return copy


def burial_copy(burial: ParkedDeadLetter, topic: str, group: str, broker: str, unique_id: str) -> Outgoing:
    """Return a dead letter made of a message that no queue holds.

    Raises:
        BrokerRefused: the headers are too large.
    """
    properties = for_burial(burial.message, burial.headers, unique_id)
    properties[ORIGIN_TOPIC] = topic
    now, place = round(time.time() * 1000), retry_topic(group)
    stored = StoredMessage(place, burial.message.body, properties, 0, now, 0, 0, 0)
    return dead_copy(stored, group, broker, {})


def replay_copy(stored: StoredMessage, group: str, broker: str) -> Outgoing:
    """Return the copy for a replayed dead letter."""
    return _copy(stored, group, broker, for_replay(stored.properties), 0, timedelta(0))


def _fitting(properties: dict[str, str], stored: StoredMessage) -> tuple[dict[str, str], bytes, int]:
    """Return properties, body and its packing as RocketMQ takes them: as they are, or sealed where they are too long."""
    if fits(properties):
        return properties, stored.body, stored.packing
    properties, body = sealed(properties, stored.body, stored.packing)
    check_size(properties)
    return properties, body, 0


def _copy(
    stored: StoredMessage,
    group: str,
    broker: str,
    properties: dict[str, str],
    attempts: int,
    delay: timedelta,
) -> Outgoing:
    marks = {
        ORIGIN_TOPIC: origin_of(stored),
        ORIGIN_ID: first_id(believed(stored)) or "",
        ATTEMPTS: str(attempts),
        MOST_ATTEMPTS: str(UNLIMITED),
    }
    properties |= {name: text for name, text in marks.items() if text}
    properties, body, packing = _fitting(properties, stored)
    return Outgoing(
        retry_topic(group),
        body,
        properties,
        (broker, 0),
        delay,
        stored.born or 1,
        attempts,
        UNLIMITED,
        stored.flag,
        packing=packing,
        # A broker that authorizes requests asks whether the account may consume for the sender of a group's retries.
        sender=group,
    )
