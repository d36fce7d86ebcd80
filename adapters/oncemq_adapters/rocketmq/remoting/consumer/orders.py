"""What administrators order a member to do through its broker: to go on somewhere else."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

from oncemq_adapters.rocketmq.remoting.consumer.process_queue import QueueKey

_MOVE = re.compile(rb"(\{[^{}]*\})\s*:\s*(-?\d+)")


def moves(body: bytes) -> Iterator[tuple[QueueKey, int]]:
    """Yield each queue and the offset at which it shall go on; RocketMQ writes objects as keys, which is no JSON."""
    for text, offset in _MOVE.findall(body):
        with suppress(ValueError, KeyError, TypeError):
            named = json.loads(text)
            yield (str(named["topic"]), str(named["brokerName"]), int(named["queueId"])), int(offset)
