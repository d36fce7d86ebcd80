"""Keeps large bodies of a topic in a store, and fetches and verifies what messages refer to."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from oncemq.common.clock import Clock, SystemClock
from oncemq.errors import ClaimAltered, ClaimGone
from oncemq.message.claims.reference import Reference, refers
from oncemq.message.claims.store import Store
from oncemq.message.envelope import Envelope, Message, OutgoingMessage
from oncemq.message.headers import CLAIM
from oncemq.message.reader import Reader

OVER = 256 * 1024
MOST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Where a topic's large bodies lie, and which they are.

    Args:
        store: the place.
        over: larger bodies are kept in the store, in bytes.
        most: still larger ones are refused, in bytes.
        keep: how long a body is kept after its message was published, or is due.
        clock: the source of time.
    """

    store: Store
    over: int = OVER
    most: int = MOST
    keep: timedelta = timedelta(days=7)
    clock: Clock = field(default_factory=SystemClock)

    def outgoing(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send; a large body is in the store by then, and the message refers to it.

        Raises:
            ClaimStoreUnavailable: the store is away.
        """
        if len(message.body) <= self.over:
            return message
        begins = max(self.clock.now(), message.due_at or self.clock.now())
        reference = Reference.of(message.body, (begins + self.keep + timedelta(days=1)).date())
        self.store.put(reference.name, message.body)
        return replace(message, body=reference.to_bytes(), headers={**message.headers, CLAIM: "1"})

    def fetch(self, message: Message) -> bytes:
        """Return the body that a message refers to.

        Raises:
            ClaimInvalid: what it refers to is never read.
            ClaimGone: the store has it no more.
            ClaimAltered: it is not the body that was sent.
            ClaimStoreUnavailable: the store is away.
        """
        reference = Reference.read(message, self.most)
        body = self.store.get(reference.name, reference.size + 1)
        if body is None:
            raise ClaimGone(
                f"its body {reference.name} is not in {self.store.url} any more: bodies are kept for claim_check: keep:"
            )
        if len(body) != reference.size or sha256(body).hexdigest() != reference.digest:
            raise ClaimAltered(f"its body {reference.name} in {self.store.url} is not the one that was sent")
        return body


class ClaimReader(Reader):
    """Reads messages whose bodies may lie in a store; the message itself keeps the reference, for its copies."""

    __slots__ = ("_claims",)

    def with_claims(self, claims: ClaimCheck) -> "ClaimReader":
        """Fetch bodies from there; returns itself."""
        self._claims = claims
        return self

    def read(self, message: Message) -> tuple[Envelope, Any]:
        """Return the envelope and the decoded body, which is fetched first if need be.

        Raises:
            MessageRefused: it does not match the topic's declaration, or its body cannot be had.
            ClaimStoreUnavailable: the store is away.
        """
        return super().read(self._whole(message))

    def read_decoded(self, message: Message, body: Any) -> tuple[Envelope, Any]:
        """Return the envelope of a message with this decoded body, and the body; as `read`."""
        return super().read_decoded(self._whole(message), body)

    def decode(self, message: Message) -> Any:
        """Return the body decoded again, sharing nothing with an earlier result; as `read`."""
        return super().decode(self._whole(message))

    def _whole(self, message: Message) -> Message:
        if not refers(message):
            return message
        if message.claimed is None:
            # Not compared nor stored: the message is still the same one.
            object.__setattr__(message, "claimed", self._claims.fetch(message))
        headers = {name: text for name, text in message.headers.items() if name != CLAIM}
        return replace(message, body=message.claimed or b"", headers=headers)


def expired(folder: str, now: datetime) -> bool:
    """Return whether a folder of bodies may be deleted: its day is over."""
    return len(folder) == 8 and folder.isascii() and folder.isdigit() and folder < f"{now:%Y%m%d}"
