"""What becomes of messages in flight when their channel is closed."""

from contextlib import AbstractContextManager, nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from oncemq.errors import BrokerRefused, Unroutable
from oncemq_adapters.rabbitmq.publishing.confirms import Batch, ConfirmChannel, Publication


class OneChannel:
    """A connection whose channel takes what it is given and is closed by the test."""

    is_open = False
    params = SimpleNamespace(frame_max=131072)

    def __init__(self) -> None:
        self._on_close: Any = None

    def channel(self, on_open_callback: Any) -> None:
        """Open at once."""
        channel = SimpleNamespace(
            is_open=True,
            add_on_close_callback=lambda callback: setattr(self, "_on_close", callback),
            add_on_return_callback=lambda _: None,
            confirm_delivery=lambda _, callback: callback(None),
            basic_publish=lambda *_, **__: None,
        )
        on_open_callback(channel)

    def written_together(self) -> AbstractContextManager[None]:
        """Write at once."""
        return nullcontext()

    def close_channel(self, code: int, text: str) -> None:
        """Close it as the broker does."""
        self._on_close(None, ChannelClosedByBroker(code, text))


def publication(exchange: str) -> Publication:
    """Return a message to an exchange."""
    return Publication(exchange, "paid", pika.BasicProperties(), b"x")


def test_a_missing_exchange_is_unroutable_for_its_own_messages_alone() -> None:
    """It closes the channel for all that is in flight: only messages to that exchange have no place."""
    connection, channel = OneChannel(), ConfirmChannel(Event())
    batch = Batch([publication("gone"), publication("there"), publication("")])
    channel.start(connection)
    channel.send(batch)
    connection.close_channel(404, "NOT_FOUND - no exchange 'gone' in vhost '/'")
    assert [type(error) for error in batch.errors] == [Unroutable, BrokerRefused, BrokerRefused]
