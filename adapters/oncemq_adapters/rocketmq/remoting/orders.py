"""What administrators ask of a member through its broker: to say how it is, and to go on somewhere else."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from oncemq_adapters.rocketmq.remoting.owned_queue import QueueKey

_MOVE = re.compile(rb"(\{[^{}]*\})\s*:\s*(-?\d+)")


def moves(body: bytes) -> Iterator[tuple[QueueKey, int]]:
    """Yield each queue and the offset at which it shall go on; RocketMQ writes objects as keys, which is no JSON."""
    for text, offset in _MOVE.findall(body):
        with suppress(ValueError, KeyError, TypeError):
            named = json.loads(text)
            yield (str(named["topic"]), str(named["brokerName"]), int(named["queueId"])), int(offset)


def running_info(topics: Sequence[str], group: str) -> bytes:
    """Return what an administrator's tool is told about a member."""
    text = {
        "properties": {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": "OnceMQ",
            "group": group,
        },
        "subscriptionSet": [{"topic": topic, "subString": "*"} for topic in topics],
        "mqTable": {},
        "statusTable": {},
    }
    return json.dumps(text).encode()
