"""Which subscriptions are one member: all of a group, because RocketMQ wants every member to subscribe alike."""

from collections.abc import Sequence

from oncemq.contracts.adapter import Sink, Subscription
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.names import group_of, parse_topic
from oncemq_adapters.rocketmq.remoting.client.routes import Routes
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member, Move
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import Window
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part


def members_of(
    subscriptions: Sequence[Subscription], address: Address, routes: Routes, sink: Sink, app: str, move: Move
) -> Sequence[Member]:
    """Return a member for each group.

    Raises:
        ConfigError: two consumers would share a group in a way that RocketMQ cannot do.
    """
    groups: dict[str, dict[str, Part]] = {}
    for one in subscriptions:
        topic = parse_topic(one.topic, one.options, address.namespace)
        group = group_of(one, address.namespace)
        parts = groups.setdefault(group, {})
        if topic.name in parts:
            other = parts[topic.name].window.consumer
            text = f"consumers {other!r} and {one.consumer!r} have the same topic and group {one.group!r}"
            raise ConfigError([f"{text}: each would get a part of the messages – give one another group:"])
        window = Window(one.consumer, one.topic, group, one.in_flight, sink)
        parts[topic.name] = Part(topic, window)
    for group, parts in groups.items():
        if len({part.options.fifo for part in parts.values()}) > 1:
            raise ConfigError(
                [
                    f"some topics of group {group!r} are fifo and some are not – give the fifo ones another group:"
                ]
            )
    return [Member(address, routes, group, parts, app, move) for group, parts in groups.items()]
