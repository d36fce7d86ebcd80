"""Sends messages to one queue in order, and says what a refusal means for the messages behind it."""

import time
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock

from oncemq_adapters.rocketmq_client.errors import RocketMQError, RocketMQRefused, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.protocol.connection import Connection
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing


class SendResults:
    """Counts down until every message has its answer.

    Args:
        count: how many messages there are.
        errors: where to write what is wrong with each.
    """

    def __init__(self, count: int, errors: list[RocketMQError | None]) -> None:
        self._left = count
        self._errors = errors
        self._lock = Lock()
        self._waiting: dict[Connection, int] = {}
        self._complete = Event()
        if not count:
            self._complete.set()

    def begin(self, connection: Connection) -> None:
        """Note that something waits for this connection."""
        with self._lock:
            self._waiting[connection] = self._waiting.get(connection, 0) + 1

    def end(self, connection: Connection) -> None:
        """Note that it waits no more."""
        with self._lock:
            self._waiting[connection] -= 1

    def answered(self, indices: Sequence[int], error: RocketMQError | None) -> None:
        """Write down the answer of these messages."""
        with self._lock:
            for at in indices:
                self._errors[at] = error
            self._left -= len(indices)
            if self._left <= 0:
                self._complete.set()

    def waits_for(self, connection: Connection) -> bool:
        """Return whether anything waits for this connection."""
        return self._waiting.get(connection, 0) > 0

    def wait(self, deadline: float) -> bool:
        """Wait until all are answered; returns whether that was in time."""
        return self._complete.wait(max(0.0, deadline - time.monotonic()))


Refusals = dict[tuple[str, str], RocketMQError]
"""Why nothing more of a key is sent, by topic and key; one for all lines of a send."""


class OrderedSend:
    """Messages that wait for the confirmation of those in flight; one thread at a time.

    Args:
        broker: by its name.
        connection: to it.
        queue: its number.
        messages: all of the send, to which indices refer.
        refusals: what is known so far.
        tally: receives each message's answer.
    """

    def __init__(
        self,
        broker: str,
        connection: Connection,
        queue: int,
        messages: Sequence[Outgoing],
        refusals: Refusals,
        tally: SendResults,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.queue = queue
        self.messages = messages
        self.tally = tally
        self._refusals = refusals
        self._waiting: deque[Sequence[int]] = deque()

    def add(self, indices: Sequence[int]) -> None:
        """Have these sent in one request, after those that were added before."""
        self._waiting.append(indices)

    def next(self) -> Sequence[int]:
        """Return the next messages to send, without those that would overtake a refused one of their key; empty at the end."""
        while self._waiting:
            indices = self._waiting.popleft()
            if self._refusals:
                indices = [at for at in indices if not self._held_back(at)]
            if indices:
                return indices
        return ()

    def refused(self, indices: Sequence[int], error: RocketMQError) -> None:
        """Answer for one message that the broker will never take; of several, find out which one it is.

        A broker that refuses a batch has stored nothing of it.
        """
        if len(indices) > 1:
            middle = len(indices) // 2
            self._waiting.extendleft((indices[middle:], indices[:middle]))
            return
        self.tally.answered(indices, error)
        message = self.messages[indices[0]]
        if message.key is not None:
            self._refusals[message.topic, message.key] = error

    def abandon(self, error: RocketMQError) -> None:
        """Answer for all that waits: it cannot be sent now."""
        while self._waiting:
            self.tally.answered(self._waiting.popleft(), error)

    def _held_back(self, at: int) -> bool:
        message = self.messages[at]
        if message.key is None:
            return False
        error = self._refusals.get((message.topic, message.key))
        if error is not None:
            self.tally.answered([at], _behind(error))
        return error is not None


def _behind(error: Exception) -> RocketMQError:
    """Return the error of a message that was not sent because an earlier one of its key is not stored."""
    kind = RocketMQUnavailable if isinstance(error, RocketMQUnavailable) else RocketMQRefused
    return kind(f"not sent, so as not to overtake an earlier message of its key: {error}")
