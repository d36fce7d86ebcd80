"""The consume side of RocketMQ's message trace: records as Java's client writes them, sent in the background."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple
from uuid import uuid4

import structlog

from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.errors import Failure
from oncemq_adapters.rocketmq.properties import first_id
from oncemq_adapters.rocketmq_client.connections import TimerThread
from oncemq_adapters.rocketmq_client.properties import (
    KEYS,
    TAGS,
    UNIQUE_ID,
)
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage

FLUSH_EVERY = 0.5
TOGETHER = 50
"""Records of one message to the trace's topic; its keys are the ids of what they trace."""
MOST_WAITING = 10_000
_TRACED_OFF, _REGION = "TRACE_ON", "MSG_REGION"
_FIELD, _END = "\x01", "\x02"
_SUCCESS, _FAILED = "0", "4"
"""Places in Java's list of what a listener returns."""

Send = Callable[[Sequence[Outgoing]], Sequence[Failure | None]]


class Record(NamedTuple):
    """What one delivery was.

    Args:
        id: of the message, by which the trace is looked up.
        keys: the message's, for the same.
        text: the record.
    """

    id: str
    keys: str
    text: str


class MessageTrace:
    """Notes deliveries when they are handed over and when they are settled; safe for all threads.

    A trace that cannot be sent holds up nothing: what is too much is dropped, and said.

    Args:
        topic: where the records go, by its real name.
        namespace: left out of the groups' names, as Java's client does.
        send: publishes; returns the error of each.
        unique_id: returns a new id for a message.
    """

    def __init__(self, topic: str, namespace: str, send: Send, unique_id: Callable[[], str]) -> None:
        self._topic = topic
        self._prefix = f"{namespace}%" if namespace else ""
        self._send = send
        self._unique_id = unique_id
        self._waiting: deque[Record] = deque()
        self._dropped = 0
        self._failing = False
        self._flushing = Lock()
        self._thread = TimerThread("oncemq-rocketmq-trace")

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        self._thread.every(FLUSH_EVERY, self.flush)

    def stop(self) -> None:
        """Send what is left, unless that failed before."""
        self._thread.stop(1.0)
        if not self._failing:
            self.flush()

    def began(self, deliveries: Iterable[Delivery]) -> None:
        """Note when deliveries were handed over."""
        now = _milliseconds()
        for delivery in deliveries:
            delivery.token.queue.begun[delivery.token.stored.offset] = now

    def ended(self, group: str, deliveries: Iterable[Delivery], *, fine: bool) -> None:
        """Note that deliveries were settled."""
        now = _milliseconds()
        for delivery in deliveries:
            stored: StoredMessage = delivery.token.stored
            began = delivery.token.queue.begun.pop(stored.offset, now)
            named = first_id(stored.properties)
            # A longer one is a stranger's, and would keep those of fifty others from being sent.
            if named is None or len(named) > _LONGEST_ID or stored.properties.get(_TRACED_OFF) == "false":
                continue
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                continue
            self._waiting.append(self._record(named, group, stored, began, now, fine=fine))

    def flush(self) -> None:
        """Send what was noted."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            records = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            (error,) = self._send([self._message(records)])
            if error is not None:
                self._dropped += len(records) + len(self._waiting)
                self._waiting.clear()
                self._say(error)
                return
            self._failing = False
        if self._dropped and not self._failing:
            self._say(None)

    def _say(self, error: Failure | None) -> None:
        if not self._failing:
            structlog.get_logger("oncemq").warning(
                "records of the message trace were dropped",
                topic=self._topic,
                records=self._dropped,
                error=str(error) if error is not None else "there are more than can be sent",
            )
        self._dropped = 0
        self._failing = error is not None

    def _message(self, records: Sequence[Record]) -> Outgoing:
        keys = dict.fromkeys(key for record in records for key in (record.id, *record.keys.split(" ")) if key)
        properties = {UNIQUE_ID: self._unique_id(), KEYS: " ".join(keys), TAGS: self._topic}
        return Outgoing(self._topic, "".join(record.text for record in records).encode(), properties)

    def _record(
        self, named: str, group: str, stored: StoredMessage, began: int, ended: int, *, fine: bool
    ) -> Record:
        request, keys = uuid4().hex.upper(), stored.properties.get(KEYS, "")[:_LONGEST_KEYS]
        region = stored.properties.get(_REGION, "DefaultRegion")[:_LONGEST_ID]
        group = group.removeprefix(self._prefix)
        before = ["SubBefore", str(began), region, group, request, named, str(stored.attempts), keys]
        after = ["SubAfter", request, named, str(ended - began), str(fine).lower(), keys]
        after += [_SUCCESS if fine else _FAILED, str(ended), group]
        return Record(named, keys, f"{_FIELD.join(before)}{_END}{_FIELD.join(after)}{_END}")


_LONGEST_KEYS, _LONGEST_ID = 100, 64
"""Characters; those of fifty messages fit into the properties of one."""


def _milliseconds() -> int:
    return round(time.time() * 1000)
