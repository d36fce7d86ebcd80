"""What a group must be for a proxy: orderly for fifo topics only, without members on the remoting protocol, begun somewhere."""

import json

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic
from oncemq_adapters.rocketmq.remoting.desk import Desk
from oncemq_adapters.rocketmq.remoting.faults import Denied
from oncemq_adapters.rocketmq.remoting.frames import loose_json
from oncemq_adapters.rocketmq.remoting.offsets import commit_offset, committed_offset, first_offset

UPDATE_GROUP = 200
ALL_GROUPS = 201
MEMBERS = 203
_PUSHED = "CONSUME_PASSIVELY"


def ensure_group(desk: Desk, group: str, *, fifo: bool) -> None:
    """Make a group on every broker that does not have it.

    Raises:
        BrokerRefused: it is there and of the other kind.
    """
    for broker in desk.routes.brokers():
        connection = desk.brokers.get(broker)
        # Asked for one group alone, a broker would make it.
        known = loose_json(connection.call(ALL_GROUPS, {})[1]).get("subscriptionGroupTable") or {}
        if group not in known:
            wanted = {"groupName": group, "consumeEnable": True, "consumeMessageOrderly": fifo}
            connection.call(UPDATE_GROUP, {}, json.dumps(wanted).encode())
            continue
        if bool(known[group].get("consumeMessageOrderly")) != fifo:
            raise BrokerRefused(
                f"group {group!r} of RocketMQ is {'not ' if fifo else ''}orderly, but its topic is "
                f"{'' if fifo else 'not '}fifo – take another group, or run `mqadmin updateSubGroup -c <cluster> "
                f"-g '{group}' -o {str(fifo).lower()}`"
            )


def refuse_others(desk: Desk, group: str) -> None:
    """Refuse a group with members on the remoting protocol: they take whole queues and see no leases.

    Raises:
        BrokerRefused: it has some now.
    """
    for broker in desk.routes.brokers():
        try:
            _, body = desk.brokers.get(broker).call(MEMBERS, {"consumerGroup": group})
        except Denied:  # nobody is connected
            continue
        found = loose_json(body)
        if found.get("connectionSet") and found.get("consumeType") == _PUSHED:
            raise BrokerRefused(
                f"group {group!r} has members on the remoting protocol, which take whole queues, while a proxy leases "
                "single messages – give this consumer another group, or use rocketmq:// for all of them"
            )


def begin(desk: Desk, topic: ProxiedTopic, group: str) -> None:
    """Note where a new group begins; a proxy would let it begin anywhere."""
    for name, number in desk.routes.find(topic.name).readable:
        connection = desk.brokers.get(name)
        if committed_offset(connection, group, topic.name, number) is None:
            start = first_offset(connection, topic.name, number, topic.options.start)
            commit_offset(connection, group, topic.name, number, start)
