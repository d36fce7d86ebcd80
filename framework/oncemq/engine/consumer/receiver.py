"""Prepares received deliveries for the scheduler: decoded or refused, and marked if they are crash suspects."""

from collections.abc import Mapping
from datetime import datetime

from oncemq.errors import MessageRefused, Undecodable
from oncemq.message.envelope import Delivery
from oncemq.message.headers import CONTENT_ENCODING
from oncemq.message.reader import Reader

REFUSED_KEY = "\0refused"
"""The scheduler's key of messages that have none; NUL cannot be part of a real key."""


class Intake:
    """Decodes deliveries, in the adapter's thread.

    Args:
        reader: message → envelope and payload.

    Attributes:
        suspects: crashes by identity, of messages that a process died on; replaced as a whole.
        distrust_before: messages published before this time run alone: a whole machine was lost; None = trust.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.suspects: Mapping[str, int] = {}
        self.distrust_before: datetime | None = None

    def understand(self, delivery: Delivery) -> None:
        """Fill in envelope, key and payload, or the refusal; never raises an Exception."""
        if delivery.refusal is not None:
            # The adapter could not read it.
            delivery.key = REFUSED_KEY
            return
        try:
            envelope, payload = self._reader.read(delivery.message)
        except MessageRefused as error:
            delivery.refusal = error
            delivery.key = REFUSED_KEY
            return
        except Exception as error:
            delivery.refusal = Undecodable(f"reading the message failed: {type(error).__name__}: {error}")
            delivery.refusal.__cause__ = error
            delivery.key = REFUSED_KEY
            return
        delivery.envelope = envelope
        delivery.key = envelope.key
        # Small compressed bodies, thousands of which may wait, would be large ones: each is decoded again when it runs.
        delivery.payload = None if CONTENT_ENCODING in delivery.message.headers else payload
        if self.suspects or self.distrust_before is not None:
            self.suspect(delivery)

    def suspect(self, delivery: Delivery) -> None:
        """Mark the delivery if a process has died on it, or may have."""
        envelope = delivery.envelope
        if envelope is None:
            return
        crashes = self.suspects.get(envelope.identity)
        old = self.distrust_before is not None and (
            envelope.published_at is None or envelope.published_at < self.distrust_before
        )
        if crashes is not None or old:
            delivery.suspect = True
            delivery.crashes = crashes or 0

    def forget(self, identity: str) -> None:
        """Trust a message again."""
        self.suspects = {other: crashes for other, crashes in self.suspects.items() if other != identity}
