"""Publishes to the app's topics from inside the engine: connects each topic's broker on first use."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import cast

from oncemq.contracts.adapter import Adapter, Confirmed, Refused
from oncemq.contracts.publisher import unknown_topic
from oncemq.contracts.requests import Answer, RequestingAdapter
from oncemq.contracts.unit import Outgoing, Run
from oncemq.contracts.verdict import PROCEED, Culprits, retry
from oncemq.engine.base.error_verdicts import describe
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, InfrastructureError, Unroutable
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.outgoing import OutgoingTopic, WhenUnroutable
from oncemq.observe.events import Observer


class Publishing:
    """Publishes with confirmation; from any thread.

    Args:
        adapters: by the broker's name.
        topics: the topics that can be published to, by name.
        consumed: brokers opened for consumers; the others are connected by the first message.
        observer: notified of dropped unroutable messages of direct handlers.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        topics: Mapping[str, OutgoingTopic],
        consumed: frozenset[str],
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self._adapters = adapters
        self._topics = topics
        self._prepared = set(consumed)
        self._preparing = {name: threading.Lock() for name in adapters}
        self._open = threading.Event()

    def open(self) -> None:
        """Allow sending: the brokers of consumers are open."""
        self._open.set()

    def broker_of(self, topic: str) -> str | None:
        """Return the broker of a topic; None for a topic no longer in the app."""
        found = self._topics.get(topic)
        return None if found is None else found.broker

    def when_unroutable(self, topic: str) -> WhenUnroutable:
        """Return the policy for a topic's unroutable messages."""
        found = self._topics.get(topic)
        return WhenUnroutable.WAIT if found is None else found.unroutable

    def topics_of(self, broker: str) -> list[str]:
        """Return the topics on a broker."""
        return [name for name, topic in self._topics.items() if topic.broker == broker]

    def publish(self, name: str, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        """Return each message's error, None if the broker confirmed it; waits until brokers are open."""
        self._open.wait()
        topic = self._topics.get(name)
        if topic is None:
            return [BrokerRefused(unknown_topic(name, self._topics))] * len(messages)
        return topic.sending(messages, lambda: self._sent(topic, messages))

    def _sent(self, topic: OutgoingTopic, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        if any(message.due_at is not None for message in messages):
            now = topic.delays.clock.now()
            messages = [message.timed(now) for message in messages]
        try:
            answers = self._adapter(topic.broker).publish(topic.name, topic.options, messages)
        except BrokerError as error:
            return [error] * len(messages)
        return [_error(answer) for answer in answers]

    def request(self, topic: OutgoingTopic, message: OutgoingMessage, wait: timedelta) -> "Future[Answer]":
        """Publish a message that wants an answer, on a broker that carries requests; returns where it arrives.

        Raises:
            BrokerError: as `RequestingAdapter.request`.
        """
        begun: list[Future[Answer]] = []

        def send() -> list[BrokerError | None]:
            try:
                adapter = cast("RequestingAdapter", self._adapter(topic.broker))
                begun.append(adapter.request(topic.name, topic.options, message, wait))
            except BrokerError as error:
                return [error]
            return [None]

        error = topic.sending([message], send)[0]
        if error is not None:
            raise error
        return begun[0]

    def send(self, run: Run) -> None:
        """Publish the messages of a direct unit's handler, in order; confirmed ones are removed from the list.

        Raises:
            InfrastructureError: a broker is unavailable; retry.
            Culprits: a broker refused.
        """
        outgoing = run.outgoing or []
        item = run.items[0]
        if item.verdict is not PROCEED:
            outgoing.clear()
        while outgoing:
            topic = outgoing[0].topic
            together = _leading(outgoing)
            errors = self._besides_dropped(topic, [sent.message for sent in together])
            outgoing[: len(together)] = [
                sent for sent, error in zip(together, errors, strict=True) if error is not None
            ]
            error = next((error for error in errors if error is not None), None)
            if isinstance(error, BrokerUnavailable):
                raise InfrastructureError(f"publishing to {topic!r} failed: {error}") from error
            if error is not None:
                raise Culprits({item: retry(f"publishing to {topic!r}: {describe(error)}", error=error)})
        run.outgoing = None

    def _besides_dropped(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> Sequence[BrokerError | None]:
        """Publish; unroutable messages that may be dropped count as sent."""
        errors = self.publish(topic, messages)
        if self.when_unroutable(topic) is not WhenUnroutable.DROP:
            return errors
        lost = {index: error for index, error in enumerate(errors) if isinstance(error, Unroutable)}
        if lost:
            names = [messages[index].message_id or "" for index in lost]
            self._observer.unroutable(topic, names, dropped=True, error=next(iter(lost.values())))
        return [None if index in lost else error for index, error in enumerate(errors)]

    def _adapter(self, broker: str) -> Adapter:
        adapter = self._adapters[broker]
        if broker not in self._prepared:
            with self._preparing[broker]:
                if broker not in self._prepared:
                    adapter.prepare([])
                    self._prepared.add(broker)
        return adapter


def _leading(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """Return the first messages for one topic with different keys: none can overtake a refused one."""
    together: list[Outgoing] = []
    keys: set[str] = set()
    for sent in outgoing:
        key = sent.message.key
        if sent.topic != outgoing[0].topic or key in keys:
            break
        if key is not None:
            keys.add(key)
        together.append(sent)
    return together


def _error(answer: Confirmed | Refused) -> BrokerError | None:
    if isinstance(answer, Confirmed):
        return None
    error = answer.error
    return error if isinstance(error, BrokerError) else BrokerRefused(describe(error))
