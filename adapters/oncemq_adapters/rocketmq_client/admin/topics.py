"""Topics and groups on the brokers: made, and waited for."""

import json
import time

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import TEMPLATE
from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.connections.routes import Routes
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.protocol.connection import Connection

_READ_AND_WRITE = 6


def connect_all(routes: Routes, brokers: Brokers) -> None:
    """Prove that the name server and at least one broker can be used.

    Raises:
        RocketMQError: they cannot; a refusal of any broker counts.
    """
    names = routes.brokers()
    if not names:
        raise RocketMQUnavailable("the RocketMQ name server knows no broker: it has not registered yet")
    brokers.reached(names)


def makes_on_demand(routes: Routes) -> bool:
    """Return whether brokers make topics by themselves."""
    try:
        return bool(routes.ask(TEMPLATE).writable)
    except Denied:
        return False


def create_topic(routes: Routes, brokers: Brokers, name: str, queues: int, *, fifo: bool = False) -> None:
    """Make a topic on every broker that can be reached, and wait until the name server knows it.

    Args:
        routes: who the brokers are.
        brokers: connections to them.
        name: its real name.
        queues: on each broker.
        fifo: the topic says of itself that its messages are in order, which proxies of RocketMQ 5 ask for.

    Raises:
        RocketMQError: a broker refused, or none can be reached.
    """
    fields = {
        "topic": name,
        "defaultTopic": TEMPLATE,
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(_READ_AND_WRITE),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={'FIFO' if fifo else 'NORMAL'}",
        "force": "false",
    }
    for connection in brokers.reached(routes.brokers()).values():
        connection.call(codes.UPDATE_TOPIC, fields)
    wait_for_route(routes, name)


def wait_for_route(routes: Routes, topic: str) -> None:
    """Wait until the name server has heard of a new topic from its broker."""
    deadline = time.monotonic() + 10
    while True:
        try:
            routes.ask(topic)
        except Denied as denied:
            if denied.code != codes.NO_TOPIC or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def create_group(connection: Connection, group: str) -> None:
    """Make a group on one broker, with the settings that it would give a group itself.

    Raises:
        RocketMQError: the broker refused.
    """
    settings = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    connection.call(codes.UPDATE_GROUP, {}, json.dumps(settings).encode())
