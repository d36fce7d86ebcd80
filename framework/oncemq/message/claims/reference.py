"""Defines references, which messages carry instead of large bodies: a name below the store, and a size."""

import json
import re
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from typing import Final, Self

from oncemq.errors import ClaimInvalid
from oncemq.message.envelope import Message
from oncemq.message.headers import CLAIM

_NAME: Final = re.compile(r"([0-9]{8})/([0-9a-f]{64})")
_LONGEST: Final = 1024
"""Bytes; a reference of ours has about 120."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A body in the store.

    The name is made of the day on which the body may be deleted and of the body's hash: nothing else can be named, equal bodies
    are one file, and only who knows a body can refer to it.

    Args:
        name: `20261231/` and the SHA-256 of the body, in hexadecimal digits.
        size: of the body, in bytes.
    """

    name: str
    size: int

    @classmethod
    def of(cls, body: bytes, until: date) -> Self:
        """Return the reference to a body that is kept until this day is over."""
        return cls(f"{until:%Y%m%d}/{sha256(body).hexdigest()}", len(body))

    @classmethod
    def read(cls, message: Message, most: int) -> Self:
        """Return the reference that a message carries, which anyone may have written.

        Args:
            message: with a mark, see `refers`.
            most: the largest body that is fetched, in bytes.

        Raises:
            ClaimInvalid: it names anything but a body below the store, or one that is too large.
        """
        try:
            found = json.loads(message.body) if len(message.body) <= _LONGEST else None
        except (ValueError, RecursionError):
            found = None
        name, size = (found.get("claim"), found.get("size")) if isinstance(found, dict) else (None, None)
        if not isinstance(name, str) or type(size) is not int or _NAME.fullmatch(name, 0) is None:
            raise ClaimInvalid(
                'its body should refer to one in the store, as {"claim": "20261231/<SHA-256>", "size": <bytes>}; other places are '
                "never read"
            )
        if not 0 < size <= most:
            raise ClaimInvalid(f"it refers to a body of {size:.0f} bytes; claim_check: most: is {most:,}")
        return cls(name, size)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the body, in hexadecimal digits."""
        return self.name.rpartition("/")[2]

    def to_bytes(self) -> bytes:
        """Return it as the body of a message."""
        return json.dumps({"claim": self.name, "size": self.size}).encode()


def refers(message: Message) -> bool:
    """Return whether a message is marked as one whose body lies in a store."""
    return CLAIM in message.headers
