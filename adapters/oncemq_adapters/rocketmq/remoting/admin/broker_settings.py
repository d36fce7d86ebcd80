"""Settings of each broker, and its state of a topic and a group; queried without creating anything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame
from oncemq_adapters.rocketmq_client.producer import LONGEST_DELAY
from oncemq_adapters.rocketmq_client.protocol import Connection, loose_json

# The rest of a configuration holds passwords, too.
_WANTED = frozenset(
    {"autoCreateSubscriptionGroup", "fileReservedTime", "timerMaxDelaySec", "timerWheelEnable"}
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a broker is configured; None where it does not say.

    Args:
        makes_groups: a group that is heard of is made.
        timer: messages can be held back to the millisecond.
        longest_delay: for how long, then.
        kept: when messages are deleted, consumed or not.
    """

    makes_groups: bool | None
    timer: bool | None
    longest_delay: timedelta
    kept: timedelta | None


@dataclass(frozen=True, slots=True)
class Inventory:
    """One broker's.

    Args:
        broker: its name.
        settings: None where the account may not read them.
        message_type: what the topic is for: NORMAL, FIFO, DELAY, TRANSACTION, MIXED; empty where brokers know no types,
            or the topic is not there.
        group: the group's settings in RocketMQ's own words; None = there is no such group.
        batches: the topic keeps messages in batches.
    """

    broker: str
    settings: Settings | None
    message_type: str
    group: Mapping[str, Any] | None
    batches: bool = False


def take_stock(brokers: Brokers, names: Iterable[str], topic: str, group: str) -> Sequence[Inventory]:
    """Return what the brokers of these names have.

    Raises:
        BrokerError: one cannot be reached, or does not let us ask for groups.
    """
    connections = {name: brokers.get(name) for name in sorted(names)}
    attributes = {name: _attributes(connection, topic) for name, connection in connections.items()}
    return [
        Inventory(
            name,
            _settings(connection),
            _message_type(connection, attributes[name]),
            group_settings(connection, group),
            _holds_batches(attributes[name]),
        )
        for name, connection in connections.items()
    ]


def group_settings(connection: Connection, group: str) -> Mapping[str, Any] | None:
    """Return a group's settings; None if the broker does not have it. Asked for it alone, a broker would make it.

    Raises:
        BrokerError: we may not ask.
    """
    _, body = connection.call(codes.ALL_GROUPS, {})
    try:
        found = (loose_json(body).get("subscriptionGroupTable") or {}).get(group)
    except AttributeError as error:
        raise MalformedFrame(f"a list of groups makes no sense: {error!r}") from error
    return found if isinstance(found, Mapping) else None


def refuse_batches(connections: Iterable[Connection], topic: str) -> None:
    """Refuse a topic of batches, for a driver that cannot take them apart.

    Raises:
        BrokerRefused: it is one; says what to write.
    """
    for connection in connections:
        if _holds_batches(_attributes(connection, topic)):
            raise BrokerRefused(f"{batches_in(topic)}; consume it with rocketmq://, which can")


def batches_in(topic: str) -> str:
    """Return what is wrong with a topic of batches."""
    return f"topic {topic!r} keeps messages in batches (queue.type=BatchCQ), which this cannot take apart"


def _holds_batches(attributes: Mapping[str, Any] | None) -> bool:
    return attributes is not None and attributes.get("queue.type") == "BatchCQ"


def _attributes(connection: Connection, topic: str) -> Mapping[str, Any] | None:
    """Return a topic's attributes; None if the broker does not have it, or does not let us ask."""
    try:
        _, body = connection.call(codes.TOPIC_CONFIG, {"topic": topic})
    except Denied:
        return None
    found = loose_json(body)
    attributes = found.get("attributes") if isinstance(found, Mapping) else None
    return attributes if isinstance(attributes, Mapping) else {}


def _message_type(connection: Connection, attributes: Mapping[str, Any] | None) -> str:
    if attributes is None:
        return ""
    named = attributes.get("message.type")
    return str(named) if named else "NORMAL" if connection.version >= codes.TIMER_SINCE else ""


def _settings(connection: Connection) -> Settings | None:
    try:
        _, body = connection.call(codes.BROKER_CONFIG, {})
    except Denied:
        return None
    pairs = (line.partition("=") for line in body.decode(errors="replace").splitlines())
    told = {name: value.strip() for name, _, value in pairs if name in _WANTED}
    return Settings(
        makes_groups=_truth(told, "autoCreateSubscriptionGroup"),
        timer=_truth(told, "timerWheelEnable") if connection.version >= codes.TIMER_SINCE else False,
        longest_delay=min(
            LONGEST_DELAY, _time(told, "timerMaxDelaySec", timedelta(seconds=1)) or LONGEST_DELAY
        ),
        kept=_time(told, "fileReservedTime", timedelta(hours=1)),
    )


def _truth(told: Mapping[str, str], name: str) -> bool | None:
    return told[name] == "true" if name in told else None


def _time(told: Mapping[str, str], name: str, unit: timedelta) -> timedelta | None:
    text = told.get(name, "")
    return int(text) * unit if text.isdigit() else None
