"""Lists, replays and removes a group's dead letters, which lie in a log that nothing can be taken out of.

A removed letter is named by a mark, a message of its own behind it; where everything before an offset is removed, the
group's committed offset on its dead-letter topic says so. RocketMQ's own tools show that offset as progress.
"""

import heapq
import json
from collections.abc import Collection, Iterator, Sequence
from time import monotonic, sleep
from typing import NamedTuple

from oncemq.contracts.adapter import DeadLetter
from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.errors import Failure
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.properties import moment_of, read_message
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import REMOVED, origin_of, replay_copy
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import (
    browse,
    commit_offset,
    committed_offset,
    first_offset,
    last_offset,
    wait_until_shown,
)
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import (
    FIRST,
    dead_topic,
    retry_topic,
)
from oncemq_adapters.rocketmq_client.producer import Producer
from oncemq_adapters.rocketmq_client.properties import TAGS, UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import Connection, Outgoing, StoredMessage

_NAMED_TOGETHER = 500
_KNOWN_WITHIN = 2.0
"""Seconds after which the name servers know a topic that a broker has made."""
_AGAIN_AFTER = 0.01


class Letter(NamedTuple):
    """A dead letter where it lies.

    Args:
        id: broker, queue and offset, which never change.
        broker: whose log it is in.
        stored: as it lies there.
    """

    id: str
    broker: str
    stored: StoredMessage


class DeadLetters:
    """The dead letters of one group.

    Args:
        routes: where the dead-letter topic is.
        brokers: connections for administration.
        producer: for replays and marks.
        group: by its real name.
    """

    def __init__(self, routes: Routes, brokers: Brokers, producer: Producer, group: str) -> None:
        self._routes = routes
        self._brokers = brokers
        self._producer = producer
        self._group = group
        self._topic = dead_topic(group)
        self._dying = retry_topic(group)

    def list(self, topic: TopicOptions, limit: int) -> Iterator[DeadLetter]:
        """Yield up to `limit` dead letters of a topic, oldest first."""
        for count, letter in enumerate(self._letters(topic)):
            if count >= limit:
                return
            stored = letter.stored
            message = read_message(
                topic.topic, stored.body, stored.properties, stored.born, stored.attempts or 1
            )
            yield DeadLetter(letter.id, message, moment_of(stored.stored))

    def replay(self, topic: TopicOptions, ids: Sequence[str]) -> int:
        """Send letters to the group again and remove each that is confirmed; returns how many.

        Raises:
            BrokerError: one could not be sent; it stays.
        """
        if topic.fifo:
            raise BrokerRefused(
                "the queues of a fifo group are locked, and RocketMQ turns what is sent to such a group into dead "
                "letters – publish the message again with `oncemq publish`, then purge the letter"
            )
        letters = self._named(topic, ids)
        errors = self._resend(letters)
        sent = [letter for letter, error in zip(letters, errors, strict=True) if error is None]
        self._remove(sent)
        failure = next((error for error in errors if error is not None), None)
        if failure is not None:
            raise failure
        return len(sent)

    def purge(self, topic: TopicOptions, ids: Sequence[str]) -> int:
        """Remove letters for ever; returns how many."""
        letters = self._named(topic, ids)
        self._remove(letters)
        return len(letters)

    def _resend(self, letters: Sequence[Letter]) -> Sequence[Failure | None]:
        """Send letters to where the group finds its retries; other drivers look elsewhere."""
        copies = [replay_copy(letter.stored, self._group, letter.broker) for letter in letters]
        return self._producer.send(copies)

    def _named(self, topic: TopicOptions, ids: Sequence[str]) -> Sequence[Letter]:
        wanted = set(ids)
        found = []
        for letter in self._letters(topic):
            if letter.id in wanted:
                found.append(letter)
                if len(found) == len(wanted):
                    break
        return found

    def _letters(self, topic: TopicOptions) -> Iterator[Letter]:
        places = self._places()
        for name in dict.fromkeys(name for name, _ in places):
            wait_until_shown(self._brokers.get(name))
        queues = [self._of_queue(broker, number) for broker, number in places]
        for letter in heapq.merge(*queues, key=lambda entry: entry.stored.stored):
            if origin_of(letter.stored) in {topic.name, ""}:
                yield letter

    def _places(self) -> Sequence[Place]:
        known_within = monotonic() + (_KNOWN_WITHIN if self._dying in self._producer.buried else 0)
        while not (places := self._known_places()) and monotonic() < known_within:
            sleep(_AGAIN_AFTER)
        return places

    def _known_places(self) -> Sequence[Place]:
        try:
            return self._routes.ask(self._topic).readable
        except Denied as denied:
            if denied.code != codes.NO_TOPIC:
                raise
            return ()  # there are no dead letters yet

    def _of_queue(self, broker: str, number: int) -> Iterator[Letter]:
        connection = self._brokers.get(broker)
        start, end = self._floor(connection, number), self._end(connection, number)
        removed = self._marked(connection, number, start, end)
        for stored in browse(
            connection, self._topic, number, start, end, group=self._group, open_copy=opened
        ):
            name = f"{broker}/{number}/{stored.offset}"
            if not _is_mark(stored) and name not in removed:
                yield Letter(name, broker, stored)

    def _floor(self, connection: Connection, number: int) -> int:
        committed = committed_offset(connection, self._group, self._topic, number)
        return max(committed or 0, first_offset(connection, self._topic, number, FIRST, self._group))

    def _end(self, connection: Connection, number: int) -> int:
        return last_offset(connection, self._topic, number, self._group)

    def _marked(self, connection: Connection, number: int, start: int, end: int) -> Collection[str]:
        found: set[str] = set()
        for mark in browse(connection, self._topic, number, start, end, REMOVED, self._group, opened):
            if _is_mark(mark):
                found.update(_named_by(mark))
        return found

    def _remove(self, letters: Sequence[Letter]) -> None:
        by_queue: dict[tuple[str, int], list[str]] = {}
        for letter in letters:
            number = int(letter.id.split("/")[-2])
            by_queue.setdefault((letter.broker, number), []).append(letter.id)
        marks = [
            self._mark(place, ids[at : at + _NAMED_TOGETHER])
            for place, ids in by_queue.items()
            for at in range(0, len(ids), _NAMED_TOGETHER)
        ]
        failure = next((error for error in self._producer.send(marks) if error is not None), None)
        if failure is not None:
            raise failure
        for broker, number in by_queue:
            self._raise_floor(broker, number)

    def _mark(self, place: tuple[str, int], ids: Sequence[str]) -> Outgoing:
        properties = {UNIQUE_ID: self._producer.unique_id(), TAGS: REMOVED}
        return Outgoing(self._topic, json.dumps(list(ids)).encode(), properties, place)

    def _raise_floor(self, broker: str, number: int) -> None:
        """Forget the marks of letters before the first one that is still there."""
        connection = self._brokers.get(broker)
        start, end = self._floor(connection, number), self._end(connection, number)
        first = next(self._of_queue(broker, number), None)
        floor = first.stored.offset if first is not None else end
        if floor > start:
            commit_offset(connection, self._group, self._topic, number, floor)


def _is_mark(stored: StoredMessage) -> bool:
    """Return whether the group itself wrote this: a message that died has an origin, whatever its tag."""
    return stored.properties.get(TAGS) == REMOVED and not origin_of(stored)


def _named_by(mark: StoredMessage) -> Sequence[str]:
    try:
        found = json.loads(mark.body)
    except (ValueError, RecursionError):
        return ()
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else ()
