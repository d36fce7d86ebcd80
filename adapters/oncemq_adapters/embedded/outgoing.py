"""Which messages are refused before they are written, and how the others are stored."""

import uuid
from datetime import datetime

from oncemq.errors import BrokerRefused, Unroutable
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.embedded.settings import Settings
from oncemq_adapters.embedded.stored_messages import microseconds, pack
from oncemq_adapters.embedded.topics import Stored


def refusal(settings: Settings, topic: str, message: OutgoingMessage) -> BrokerRefused | None:
    """Return why this message cannot be published; None if it can."""
    if not topic.strip() or not topic.isprintable():
        return Unroutable(f"embedded broker {settings.place}: {topic!r} cannot be a topic's name")
    if len(message.body) > settings.max_body:
        return BrokerRefused(
            f"embedded broker {settings.place}: a body of {len(message.body)} bytes for topic {topic!r} is over "
            f"max_body ({settings.max_body} bytes)"
        )
    return None


def stored(message: OutgoingMessage, now: datetime) -> Stored:
    """Return the message as it is written; without a producer's id it gets one that is unique anywhere."""
    keys = () if message.key is None else (message.key,)
    # What only a group writes of tries before is not a producer's to say.
    headers = {name: text for name, text in message.headers.items() if name not in names.HISTORY}
    properties = pack(headers, keys, message.message_id or uuid.uuid4().hex)
    due_at = microseconds(now + message.delay) if message.delay else 0
    return Stored(properties, message.body, microseconds(now), due_at)
