"""Copies of stored messages that no delivery stands for: those of a queue whose messages go elsewhere."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage

Send = Callable[[Sequence[Outgoing]], Sequence[BrokerError | None]]


def resend(
    messages: Sequence[StoredMessage], copy: Callable[[StoredMessage], Outgoing], send: Send
) -> list[StoredMessage]:
    """Publish a copy of each message; returns those whose copy is confirmed. A message that cannot be copied stays where it is."""
    copied, copies = list[StoredMessage](), list[Outgoing]()
    for message in messages:
        with suppress(BrokerError):
            copies.append(copy(message))
            copied.append(message)
    answers = send(copies) if copies else ()
    return [message for message, error in zip(copied, answers, strict=True) if error is None]
