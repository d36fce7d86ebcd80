"""Prepares received deliveries for the scheduler: decoded or refused, and marked if they are crash suspects."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from oncemq.engine.consumer.batch_fill import BatchFill
from oncemq.engine.consumer.value_limit import ValueLimit
from oncemq.errors import ClaimStoreUnavailable, MessageRefused, Undecodable
from oncemq.ledger.records.suspects import names_of, overruns
from oncemq.message.envelope import Delivery, Envelope
from oncemq.message.headers import CONTENT_ENCODING
from oncemq.message.reader import Reader
from oncemq.message.routed_reader import RoutedReader
from oncemq.message.signed_history import HistoryKeys, without_history

REFUSED_KEY = "\0refused"
"""The scheduler's key of messages that have none; NUL cannot be part of a real key."""


class Intake:
    """Decodes deliveries, in the adapter's thread.

    Args:
        reader: message → envelope and payload.
        keys: sign what messages carry of their tries; None = the group's own places are trusted.
        place: of the consumer, in signatures.
        forged: called with a delivery whose claims are not signed; they are gone by then.

    Attributes:
        values: reads the value by which messages are limited; None without such a limit.
        groups: reads the value that all messages of a batch have; None where they may have any.
        suspects: crashes by identity, of messages that a process died on; replaced as a whole.
        refused_in_order: a refused message with a key is scheduled under that: later ones of the key wait for it.
        distrust_before: messages published before this time run alone: a whole machine was lost; None = trust.
    """

    def __init__(
        self,
        reader: Reader,
        keys: HistoryKeys | None = None,
        place: str = "",
        forged: Callable[[Delivery], None] = lambda _delivery: None,
    ) -> None:
        self._reader = reader
        self._routed = reader if isinstance(reader, RoutedReader) else None
        self._keys = keys
        self._place = place
        self._forged = forged
        self.values: ValueLimit | None = None
        self.groups: BatchFill | None = None
        self.suspects: Mapping[str, int] = {}
        self.distrust_before: datetime | None = None
        self.refused_in_order = False

    def understand(self, delivery: Delivery) -> None:
        """Fill in envelope, key and payload, or the refusal.

        Raises:
            ClaimStoreUnavailable: the body lies in a store that is away; nothing else is raised.
        """
        if delivery.refusal is not None:
            # The adapter could not read it.
            delivery.key = self._key_of_refused(delivery)
            return
        try:
            envelope, payload = self._read(delivery)
        except MessageRefused as error:
            delivery.refusal = error
            delivery.key = self._key_of_refused(delivery)
            return
        except ClaimStoreUnavailable:
            raise
        except Exception as error:
            delivery.refusal = Undecodable(f"reading the message failed: {type(error).__name__}: {error}")
            delivery.refusal.__cause__ = error
            delivery.key = self._key_of_refused(delivery)
            return
        delivery.envelope = envelope
        delivery.key = envelope.key
        if self.values is not None:
            self.values.note(delivery, payload)
        if self.groups is not None:
            self.groups.note(delivery, payload)
        # Small compressed bodies, thousands of which may wait, would be large ones: each is decoded again when it runs.
        hidden = CONTENT_ENCODING in delivery.message.headers or delivery.message.claimed is not None
        delivery.payload = None if hidden else payload
        if self.suspects or self.distrust_before is not None:
            self.suspect(delivery)

    def _key_of_refused(self, delivery: Delivery) -> str:
        """Return the key under which a refused message is scheduled: its own if it may hold that."""
        return (self.refused_in_order and delivery.known_key) or REFUSED_KEY

    def signed(self, delivery: Delivery, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of a delivery's copy, signed if there is a key."""
        if self._keys is None:
            return headers
        identity = delivery.envelope.identity if delivery.envelope is not None else ""
        return self._keys.signed(headers, self._place, identity, delivery.message.body)

    def _read(self, delivery: Delivery) -> tuple[Envelope, Any]:
        routed = self._routed
        read = self._reader.read(delivery.message) if routed is None else self._with_route(routed, delivery)
        # What is parked comes from the ledger, which only we write.
        if self._keys is None or delivery.source is not None:
            return read
        believed = self._keys.believed(delivery.message, self._place, read[0].identity)
        if believed is delivery.message:
            return read
        delivery.message = believed or without_history(delivery.message)
        if believed is None:
            self._forged(delivery)
        return self._reader.read(delivery.message) if routed is None else self._with_route(routed, delivery)

    @staticmethod
    def _with_route(reader: RoutedReader, delivery: Delivery) -> tuple[Envelope, Any]:
        delivery.route, envelope, payload = reader.read_with_route(delivery.message)
        return envelope, payload

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

    def overruns(self, delivery: Delivery) -> int:
        """Return how many of the delivery's crashes were ended by the hard time limit."""
        envelope = delivery.envelope
        return 0 if envelope is None else self.suspects.get(overruns(envelope.identity), 0)

    def forget(self, identity: str) -> None:
        """Trust a message again."""
        gone = names_of(identity)
        self.suspects = {other: crashes for other, crashes in self.suspects.items() if other not in gone}
