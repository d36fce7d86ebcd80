"""Contract of brokers that carry requests: published messages that say where their answer is awaited."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from oncemq.contracts.adapter import Adapter
from oncemq.message.envelope import OutgoingMessage


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a request.

    Args:
        body: the bytes; JSON if a consumer with `reply: true` sent them.
        failed: the request failed for good, and the body says why, as `oncemq.engine.base.answers` writes it.
        trouble: why the body could not be unpacked; empty for a good one.
    """

    body: bytes
    failed: bool = False
    trouble: str = ""


class RequestingAdapter(Adapter, Protocol):
    """Optional protocol of an adapter with `Capabilities.requests`."""

    def request(
        self, topic: str, options: Mapping[str, Any], message: OutgoingMessage, wait: timedelta
    ) -> "Future[Answer]":
        """Publish to a topic, as `publish` does; returns where its answer arrives, once the broker has the message.

        The first answer counts, later ones are dropped. An answer that arrives while the connection is lost is read when
        it is there again, if the broker keeps it. The future fails with a BrokerError when the adapter is closed. Who drops or cancels it
        waits no longer.

        Args:
            topic: the topic's name in the app.
            options: its broker options.
            message: the request.
            wait: how long this call may take; the caller sees to the time that the answer takes.

        Raises:
            BrokerError: the broker refused it, or did not confirm it: then it may have it nevertheless.
        """
        ...
