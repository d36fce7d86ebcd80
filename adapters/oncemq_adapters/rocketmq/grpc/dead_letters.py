"""Dead letters that were sent through a proxy: listed and removed like all others, replayed to where a proxy looks.

A proxy breaks off its answer at a message that it cannot translate, each time again, and a FIFO queue goes on only when its
head is settled. So such a head is read over the remoting protocol, made a dead letter, and the group's position set behind it.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from oncemq.errors import BrokerError
from oncemq.message import headers as names
from oncemq_adapters.rocketmq.grpc.copies import copy_to, unique_id
from oncemq_adapters.rocketmq.grpc.requests import Sending
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic, leased_retry_topic
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.properties import for_replay
from oncemq_adapters.rocketmq.remoting.dead_letters import DeadLetters, Letter
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import dead_copy
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import browsing_fields, commit_offset, committed_offset
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.properties import UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import StoredMessage, decode

Send = Callable[[Sequence[Sending]], Sequence[BrokerError | None]]
_EARLIEST: Final = round(datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000)
_LATEST: Final = 253_402_300_799_999
"""The bounds of the protocol's timestamps, in milliseconds since 1970; the last one is the end of the year 9999."""
UNTRANSLATABLE: Final = "undecodable"
"""The reason of such dead letters."""


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


def remove_untranslatable_heads(desk: Operations, topic: ProxiedTopic, group: str, consumer: str) -> int:
    """Make dead letters of the messages at the heads of the group's queues that a proxy cannot translate; return how many.

    Args:
        desk: connections over the remoting protocol.
        topic: a FIFO topic.
        group: the consumer group, by its real name.
        consumer: the consumer's name, for the dead letter and the log.

    Raises:
        BrokerError: a broker does not answer, or refuses the dead letter; nothing was skipped then.
    """
    removed = 0
    for place in desk.routes.ask(topic.name).readable:
        passed = -1
        # Each head once: where the group's position does not follow, its next look would find the same one again.
        while (head := _head(desk.brokers, place, topic.name, group)) is not None and head.offset > passed:
            if _fits(head):
                break
            _bury(desk, head, place, group, consumer)
            passed = head.offset
            removed += 1
    return removed


def _fits(message: StoredMessage) -> bool:
    """Return whether the proxy's protocol can hold the message's times."""
    return _EARLIEST <= message.born <= _LATEST and _EARLIEST <= message.stored <= _LATEST


def _head(brokers: Brokers, place: Place, topic: str, group: str) -> StoredMessage | None:
    broker, number = place
    connection = brokers.get(broker)
    at = committed_offset(connection, group, topic, number)
    if at is None:
        return None
    try:
        _, body = connection.call(codes.PULL_MESSAGE, browsing_fields(topic, number, at))
    except Denied as denied:
        if denied.code in codes.PULLED_NOTHING:
            return None
        raise
    messages, _ = decode(body, topic, at, opened)
    return messages[0] if messages and messages[0].offset == at else None


def _bury(desk: Operations, head: StoredMessage, place: Place, group: str, consumer: str) -> None:
    broker, number = place
    text = f"the proxy cannot translate it: it was sent {head.born} milliseconds after 1970, which no timestamp holds"
    now = datetime.now(UTC)
    head.born = round(now.timestamp() * 1000)
    told = {
        names.ATTEMPT: "1",
        names.CONSUMER: consumer,
        names.REASON: UNTRANSLATABLE,
        names.ERROR_TEXT: text,
        names.FIRST_FAILED_AT: now.isoformat(),
        names.LAST_FAILED_AT: now.isoformat(),
    }
    (failure,) = desk.producer.send([dead_copy(head, group, broker, told)])
    if failure is not None:
        raise failure
    # A death between the two leaves a second dead letter; the other order could lose the message.
    connection = desk.brokers.get(broker)
    if (
        committed_offset(connection, group, head.topic, number) == head.offset
    ):  # else another process has passed it
        commit_offset(connection, group, head.topic, number, head.offset + 1)
    structlog.get_logger("oncemq").error(
        "RocketMQ's proxy cannot translate the first message of a FIFO queue; it is a dead letter now",
        consumer=consumer,
        topic=head.topic,
        queue=number,
        offset=head.offset,
        error=text,
    )
