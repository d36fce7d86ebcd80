"""Publishing to the app's topics from inside: whichever broker a topic is on, connected when it is first needed."""

import threading
from collections.abc import Mapping, Sequence

from oncemq.contracts.adapter import Adapter, Confirmed, Refused
from oncemq.contracts.publisher import unknown_topic
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
        topics: what may be published to, by name.
        consumed: brokers that are opened for consumers anyway; the others are connected by the first message.
        observer: told of unroutable messages that a direct handler published and that are dropped.
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
        """Let messages out: the brokers of consumers are open."""
        self._open.set()

    def broker_of(self, topic: str) -> str | None:
        """Return the broker of a topic; None for a topic that is not in the app any more."""
        found = self._topics.get(topic)
        return None if found is None else found.broker

    def when_unroutable(self, topic: str) -> WhenUnroutable:
        """Return what becomes of a topic's messages for which the broker has no place."""
        found = self._topics.get(topic)
        return WhenUnroutable.WAIT if found is None else found.unroutable

    def topics_of(self, broker: str) -> list[str]:
        """Return the topics on a broker."""
        return [name for name, topic in self._topics.items() if topic.broker == broker]

    def publish(self, name: str, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        """Return what is wrong with each message, None where the broker has it; waits until brokers are open."""
        self._open.wait()
        topic = self._topics.get(name)
        if topic is None:
            return [BrokerRefused(unknown_topic(name, self._topics))] * len(messages)
        try:
            answers = self._adapter(topic.broker).publish(name, topic.options, messages)
        except BrokerError as error:
            return [error] * len(messages)
        return [_error(answer) for answer in answers]

    def send(self, run: Run) -> None:
        """Publish what the handler of a direct unit published, in order; what is confirmed is taken off the list.

        Raises:
            InfrastructureError: a broker is away; try again.
            Culprits: a broker said no.
        """
        outgoing = run.outgoing or []
        item = run.items[0]
        if item.verdict is not PROCEED:
            outgoing.clear()
        while outgoing:
            topic = outgoing[0].topic
            together = _leading(outgoing)
            errors = self._besides_dropped(topic, [one.message for one in together])
            outgoing[: len(together)] = [
                one for one, error in zip(together, errors, strict=True) if error is not None
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
        """Publish; what is unroutable and may be dropped counts as sent."""
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
    """Return the first messages that are for one topic and of different keys: if one is refused, none overtakes it."""
    together: list[Outgoing] = []
    keys: set[str] = set()
    for one in outgoing:
        key = one.message.key
        if one.topic != outgoing[0].topic or key in keys:
            break
        if key is not None:
            keys.add(key)
        together.append(one)
    return together


def _error(answer: Confirmed | Refused) -> BrokerError | None:
    if isinstance(answer, Confirmed):
        return None
    error = answer.error
    return error if isinstance(error, BrokerError) else BrokerRefused(describe(error))
