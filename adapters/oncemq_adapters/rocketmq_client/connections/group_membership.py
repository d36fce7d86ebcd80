"""Membership in a group as brokers see it: its identity, its subscriptions, and its departure."""

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import RocketMQError
from oncemq_adapters.rocketmq_client.names import Selection
from oncemq_adapters.rocketmq_client.protocol.connection import Connection
from oncemq_adapters.rocketmq_client.protocol.heartbeat import (
    SHARING,
    HeldQueue,
    heartbeat_body,
    running_info_body,
)

GOODBYE_WITHIN = 2.0


class GroupMembership:
    """One client id in one group.

    Args:
        app: the app's name, for people who look at the broker.
        group: by its real name.
        topics: that it subscribes to, the group's retries included.
        selection: returns what is subscribed to of a topic.
        version: of the subscriptions.
        model: whether members share the messages, or each gets all.

    Attributes:
        client: the id, unlike any other's.
        consuming: it is a member; otherwise it only keeps its connections.
    """

    def __init__(
        self,
        app: str,
        group: str,
        topics: Sequence[str],
        selection: Callable[[str], Selection],
        version: int,
        model: str = SHARING,
    ) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", app)
        self.client = f"{socket.gethostname()}@{os.getpid()}@{name}-{os.urandom(3).hex()}"
        self.consuming = True
        self._group = group
        self._topics = topics
        self._selection = selection
        self._version = version
        self._model = model

    def hello(self, connection: Connection) -> None:
        """Say that we live.

        Raises:
            RocketMQError: the broker does not answer, or does not welcome us.
        """
        body = heartbeat_body(
            self.client,
            self._group,
            self._subscribed(),
            self._version,
            consuming=self.consuming,
            model=self._model,
        )
        connection.call(codes.HEARTBEAT, {}, body)

    def beat(self, connections: Iterable[Connection]) -> str:
        """Say it by every connection; those that do not answer are closed. Returns what was wrong."""
        trouble = ""
        for connection in connections:
            try:
                self.hello(connection)
            except RocketMQError as error:
                trouble = str(error)
                connection.close(error)
        return trouble

    def running_info(
        self,
        queues: Iterable[HeldQueue],
        rates: Mapping[str, Mapping[str, float]],
        *,
        fifo: bool,
        servers: str,
    ) -> bytes:
        """Return the answer to an administrator's status query."""
        return running_info_body(
            self._subscribed(), self._version, queues, rates, fifo=fifo, servers=servers, model=self._model
        )

    def farewell(self, connections: Iterable[Connection]) -> None:
        """Leave the group, so that others need not wait for our silence."""
        fields = {"clientID": self.client, "consumerGroup": self._group}
        for connection in connections:
            with suppress(RocketMQError):
                connection.call(codes.UNREGISTER, fields, timeout=GOODBYE_WITHIN)

    def _subscribed(self) -> Mapping[str, Selection]:
        return {topic: self._selection(topic) for topic in self._topics}
