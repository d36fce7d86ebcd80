"""Client of RocketMQ over its remoting protocol, in pure Python: usable without the framework.

`Client` publishes, asks, pulls, keeps offsets and administrates. Its rooms have the parts of which other clients are made:
`protocol` (the wire), `connections` (routes, brokers, membership, allocation), `producer` and `admin`.
"""

from oncemq_adapters.rocketmq_client.client import Client, Pull, QueueState
from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.errors import (
    Denied,
    MalformedFrame,
    NoReply,
    RocketMQError,
    RocketMQRefused,
    RocketMQUnavailable,
)
from oncemq_adapters.rocketmq_client.producer.requests import Reply
from oncemq_adapters.rocketmq_client.protocol.message_codec import StoredMessage
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing

__all__ = [
    "Client",
    "Cluster",
    "Denied",
    "MalformedFrame",
    "NoReply",
    "Outgoing",
    "Place",
    "Pull",
    "QueueState",
    "Reply",
    "RocketMQError",
    "RocketMQRefused",
    "RocketMQUnavailable",
    "StoredMessage",
]
