"""Publisher of handlers: messages are sent only once the handler's own effect is certain."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from oncemq.contracts.unit import Item, Outgoing, Run
from oncemq.errors import HandlerFault, Unpublishable
from oncemq.message.outgoing import OutgoingTopic
from oncemq.registry import did_you_mean


class Collects(Protocol):
    """Collects the messages given to a Publisher; None once publishing has ended."""

    outgoing: list[Outgoing] | None


class Collected:
    """Messages published by a function that is not a handler."""

    __slots__ = ("outgoing",)

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] | None = []

    def end(self) -> list[Outgoing]:
        """Return the published messages; afterwards publishing is refused."""
        published, self.outgoing = self.outgoing or [], None
        return published


class Publisher:
    """Publishes to the app's topics: `def handler(order: OrderPaid, session: Session, publisher: Publisher)`.

    Where effects are in the database, messages are stored in the handler's transaction and sent after its commit,
    in order for each key, at least once and always with the same message id. If the transaction does not commit,
    or the message is not applied, nothing is sent.

    Where effects are external and a strategy stores claims (`two_phase`, `redis_flag`), messages are stored in the
    database when the handler has returned, before its claim is done, and sent after that.

    Where effects are external without claims, messages are sent when the handler has returned, and the broker
    confirms them before the handler's own message is acknowledged. If that fails, the message is retried, and
    the messages sent before are sent again.
    """

    __slots__ = ("_item", "_run", "_topics")

    def __init__(self, topics: Mapping[str, OutgoingTopic], run: Collects, item: Item | None) -> None:
        self._topics = topics
        self._run = run
        self._item = item

    def publish(
        self,
        topic: str,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
        delay: timedelta | str | float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> str:
        """Publish once the handler's effect is certain; returns the message's id.

        Args:
            topic: the name of a topic below `topics`; it decides the broker.
            body: anything the topic's format can hold; for JSON also models, dataclasses, datetimes. Bytes are sent unchanged.
            key: the broker's business key, for topics with `key: keys[0]`; messages of one key keep their order.
                May be omitted where the topic reads its key from the body.
            version: sent in the header `version`, for topics with `version: headers.version`.
            headers: text to text.
            message_id: your own id instead of a generated one.
            delay: how long from now the message is held back: a timedelta, text such as "30m", or seconds.
            at: until when it is held back instead, aware; a moment that is over means now.
            priority: on a topic with `max_priority`: urgent messages, with a higher one, are delivered first.

        Raises:
            Unpublishable: no such topic, its consumers could not read the message, or nothing can hold it back.
            HandlerFault: the handler has already returned.
        """
        outgoing = self._open("send this")
        message = _known(self._topics, topic).message(
            body,
            key=key,
            version=version,
            headers=headers,
            message_id=message_id,
            delay=delay,
            at=at,
            priority=priority,
        )
        outgoing.append(Outgoing(topic, message, self._item))
        return str(message.message_id)

    def cancel(self, topic: str, *, key: str | int | None = None, message_id: str | None = None) -> None:
        """Have messages forgotten that were published for later, once the handler's effect is certain.

        It covers what earlier calls of the same handler published, too. What is due already may be on its way: its
        handler should look whether it still applies.

        Args:
            topic: the name of a topic below `topics`.
            key: those of this business key.
            message_id: the one with this id, as `publish` returned it.

        Raises:
            Unpublishable: no such topic, neither key nor id, or its messages are not held back by the outbox.
            HandlerFault: the handler has already returned.
        """
        outgoing = self._open("cancel this")
        wanted = _known(self._topics, topic).cancellation(key, message_id)
        outgoing.append(Outgoing(topic, wanted, self._item, cancels=True))

    def _open(self, doing: str) -> list[Outgoing]:
        outgoing = self._run.outgoing
        if outgoing is None:
            raise HandlerFault(
                f"a Publisher was used after its handler's unit was over: nothing would {doing}"
            )
        return outgoing


class Publishers:
    """Makes the publishers of one consumer.

    Args:
        topics: the topics that can be published to, by name.
    """

    def __init__(self, topics: Mapping[str, OutgoingTopic]) -> None:
        self._topics = topics

    def trial(self) -> Publisher:
        """Return a publisher whose messages go nowhere, to find what cannot be published; no hook sees them."""
        return Publisher(
            {name: topic.with_hooks(()) for name, topic in self._topics.items()}, Collected(), None
        )

    def of_item(self, run: Run, item: Item) -> Publisher:
        """Return the publisher of one message: its messages are sent if that message is applied."""
        return Publisher(self._topics, run, item)

    def of_run(self, run: Run) -> Publisher:
        """Return the publisher of a batch: its messages are sent if the batch is applied."""
        return Publisher(self._topics, run, None)

    def of_function(self, collected: Collected) -> Publisher:
        """Return the publisher of a function called outside of any run."""
        return Publisher(self._topics, collected, None)


def _known(topics: Mapping[str, OutgoingTopic], name: str) -> OutgoingTopic:
    found = topics.get(name)
    if found is None:
        raise Unpublishable(unknown_topic(name, topics))
    return found


def unknown_topic(name: str, topics: Collection[str]) -> str:
    """Return the error text for a topic that cannot be published to."""
    known = f" (known here: {', '.join(sorted(topics))})" if topics else ""
    return f"unknown topic {name!r}{did_you_mean(str(name), list(topics))}{known}"
