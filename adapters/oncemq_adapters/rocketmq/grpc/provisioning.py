"""Provisions topics and groups for a proxy: checks them, and creates them over the remoting protocol if name servers are given."""

from collections.abc import Callable, Iterator

from oncemq.errors import BrokerRefused, Unroutable
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.grpc.errors import NO_TOPIC
from oncemq_adapters.rocketmq.grpc.groups import begin, ensure_group, refuse_others
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic, leased_retry_topic
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import refuse_batches
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import connect_all, wait_for_route
from oncemq_adapters.rocketmq_client.codes import TEMPLATE
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import dead_topic

_READ_AND_WRITE = 6


class Places:
    """Looks for topics and groups, and makes them.

    Args:
        ask: asks the proxy for a topic; raises BrokerError if there is none.
        desk: connections over the remoting protocol; None = no name servers are given.
    """

    def __init__(self, ask: Callable[[str], None], desk: Operations | None) -> None:
        self._ask = ask
        self._desk = desk

    def connect(self) -> None:
        """Prove that the name servers can be used, where they are given."""
        if self._desk is not None:
            connect_all(self._desk.routes, self._desk.brokers)

    def prepare(self, topic: ProxiedTopic, group: str) -> None:
        """Make sure that a topic exists, and a group's own places for it.

        Raises:
            BrokerError: something is missing and is not made here, or the group is of another kind.
        """
        self._ensure(topic.name, topic.options.queues, topic.message_type, wanted=self._may_make(topic))
        if self._desk is not None:
            refuse_batches(self._desk.brokers.alive().values(), topic.name)
            refuse_others(self._desk, group)
            ensure_group(self._desk, group, fifo=topic.fifo)
        self._ensure(leased_retry_topic(group, topic.name), 1, "MIXED", wanted=True)
        self._ensure(dead_topic(group), 1, "MIXED", wanted=True)
        if self._desk is not None:
            begin(self._desk, topic, group)

    def missing(self, topic: ProxiedTopic, group: str) -> Iterator[BrokerRefused]:
        """Yield which of them are missing and are not made at the start; nothing is made.

        Raises:
            BrokerError: the proxy or the name servers do not say.
        """
        made = self._desk is not None
        for name, kind, wanted in (
            (topic.name, topic.message_type, self._may_make(topic)),
            (leased_retry_topic(group, topic.name), "MIXED", made),
            (dead_topic(group), "MIXED", made),
        ):
            if not self.exists(name) and not (made and wanted):
                yield _missing(name, kind)

    def _may_make(self, topic: ProxiedTopic) -> bool:
        if topic.options.create is not None or self._desk is None:
            return bool(topic.options.create)
        try:
            return bool(self._desk.routes.ask(TEMPLATE).writable)
        except Denied:
            return False

    def _ensure(self, name: str, queues: int, kind: str, *, wanted: bool) -> None:
        if self.exists(name):
            return
        if self._desk is None or not wanted:
            raise _missing(name, kind)
        self._make(self._desk, name, queues, kind)

    def exists(self, name: str) -> bool:
        """Return whether there is a topic of this name.

        Raises:
            BrokerError: the proxy or the name servers do not say.
        """
        try:
            # A proxy remembers for a while that there was no such topic, so name servers are asked where they are known.
            if self._desk is None:
                self._ask(name)
            else:
                self._desk.routes.ask(name)
        except FAILURES as error:
            if getattr(error, "code", 0) not in {NO_TOPIC, codes.NO_TOPIC}:
                raise
            return False
        return True

    def _make(self, desk: Operations, name: str, queues: int, kind: str) -> None:
        fields = {
            "topic": name,
            "defaultTopic": TEMPLATE,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(_READ_AND_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": f"+message.type={kind}",
            "force": "false",
        }
        for broker in desk.routes.brokers():
            desk.brokers.get(broker).call(codes.UPDATE_TOPIC, fields)
        wait_for_route(desk.routes, name)


def _missing(name: str, kind: str) -> Unroutable:
    return Unroutable(
        f"topic {name!r} does not exist on RocketMQ, and gRPC cannot make it – run "
        f"`mqadmin updateTopic -c <cluster> -t '{name}' -a +message.type={kind}`, or write name_servers: [host:9876] "
        "at the broker and create: true at the topic"
    )
