"""Dead letters that were sent through a proxy: listed and removed like all others, replayed to where a proxy looks."""

from collections.abc import Callable, Iterator, Sequence

from oncemq.errors import BrokerError
from oncemq.message import headers as names
from oncemq_adapters.rocketmq.grpc.copies import copy_to, unique_id
from oncemq_adapters.rocketmq.grpc.requests import Sending
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic, leased_retry_topic
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.properties import UNIQUE_ID, for_replay
from oncemq_adapters.rocketmq.remoting.dead_letters import DeadLetters, Letter
from oncemq_adapters.rocketmq.remoting.operations import Operations

Send = Callable[[Sequence[Sending]], Sequence[BrokerError | None]]


class LeasedGraveyard(DeadLetters):
    """The dead letters of one group behind a proxy.

    Args:
        desk: connections over the remoting protocol.
        group: by its real name.
        topic: whose letters.
        send: publishes through the proxy.
    """

    def __init__(self, desk: Operations, group: str, topic: ProxiedTopic, send: Send) -> None:
        super().__init__(desk.routes, desk.brokers, desk.producer, group)
        self._retries = leased_retry_topic(group, topic.name)
        self._own = topic.name
        self._through = send

    def _letters(self, topic: TopicOptions) -> Iterator[Letter]:
        # Letters through a proxy name their topic in a header of ours.
        for letter in super()._letters(topic):
            if letter.stored.properties.get(names.ORIGIN_TOPIC, self._own) in {self._own, topic.topic}:
                yield letter

    def _resend(self, letters: Sequence[Letter]) -> Sequence[BrokerError | None]:
        return self._through([self._copy(letter) for letter in letters])

    def _copy(self, letter: Letter) -> Sending:
        properties = for_replay(letter.stored.properties) | {UNIQUE_ID: unique_id()}
        return copy_to(self._retries, letter.stored.body, properties)
