"""Wire of RocketMQ's remoting protocol: frames, connections, heartbeats, messages as they are sent and stored."""

from oncemq_adapters.rocketmq_client.protocol.connection import (
    ANSWER_WITHIN,
    DEFERRED,
    Connection,
    Deferred,
    Done,
    Fields,
)
from oncemq_adapters.rocketmq_client.protocol.frames import Frame, loose_json
from oncemq_adapters.rocketmq_client.protocol.heartbeat import (
    BROADCASTING,
    SHARING,
    client_check_body,
    producer_heartbeat_body,
)
from oncemq_adapters.rocketmq_client.protocol.message_codec import (
    LARGEST_BODY,
    MOST_UNPACKED,
    UNPACKED_AT_ONCE,
    StoredMessage,
    decode,
    kind_of,
    unpack,
)
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing, pack, send_fields

__all__ = [
    "ANSWER_WITHIN",
    "BROADCASTING",
    "DEFERRED",
    "LARGEST_BODY",
    "MOST_UNPACKED",
    "SHARING",
    "UNPACKED_AT_ONCE",
    "Connection",
    "Deferred",
    "Done",
    "Fields",
    "Frame",
    "Outgoing",
    "StoredMessage",
    "client_check_body",
    "decode",
    "kind_of",
    "loose_json",
    "pack",
    "producer_heartbeat_body",
    "send_fields",
    "unpack",
]
