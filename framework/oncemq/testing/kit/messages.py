"""Messages as other services send them, also such as no consumer can read; and as the app has published them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from oncemq.contracts.publisher import unknown_topic
from oncemq.engine.publishers.app_publisher import NewMessage
from oncemq.errors import Unpublishable
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.headers import CONTENT_TYPE
from oncemq.message.outgoing import CONTENT_TYPES, VERSION, OutgoingTopic
from oncemq.testing.kit.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that the app has published, and that its broker has confirmed.

    Args:
        topic: the topic's name in the app.
        body: decoded if it is JSON or text, else bytes.
        key: the business key.
        headers: text to text.
        outcome: what became of it, if the app consumes the topic, too.
    """

    topic: str
    body: Any
    key: str | None
    headers: Mapping[str, str]
    outcome: Outcome = field(compare=False)


def as_new(message: Any) -> NewMessage:
    """Return a message for a body, or the message itself."""
    return message if isinstance(message, NewMessage) else NewMessage(message)


def as_sent(topics: Mapping[str, OutgoingTopic], topic: str, new: NewMessage) -> OutgoingMessage:
    """Return the message to send to a topic.

    Raises:
        Unpublishable: no such topic, or its format cannot encode the body.
    """
    declared = topics.get(topic)
    if declared is None:
        raise Unpublishable(unknown_topic(topic, topics))
    try:
        # The app's own middlewares are not those of other services.
        made = declared.with_hooks(()).message(
            new.body,
            key=new.key,
            version=new.version,
            headers=new.headers,
            message_id=new.message_id,
            delay=new.delay,
            at=new.at,
            priority=new.priority,
        )
        return made.timed(declared.delays.clock.now())
    except Unpublishable:
        headers = dict(new.headers or {})
        if new.version is not None:
            headers.setdefault(VERSION, str(new.version))
        key = None if new.key is None else str(new.key)
        return OutgoingMessage(declared.encode(new.body), headers, key, new.message_id or uuid4().hex)


def as_published(topic: str, message: OutgoingMessage, outcome: Outcome) -> PublishedMessage:
    """Return a message that was sent, with its body decoded where its headers say how."""
    return PublishedMessage(topic, _body(message), message.key, dict(message.headers), outcome)


def _body(message: OutgoingMessage) -> Any:
    kind = message.headers.get(CONTENT_TYPE, "")
    if kind == CONTENT_TYPES["json"]:
        return json.loads(message.body)
    return message.body.decode() if kind == CONTENT_TYPES["text"] else message.body
