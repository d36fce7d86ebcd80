"""Signs what a message carries of its tries, so that only the holders of a key can write it."""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from oncemq.message import headers as names
from oncemq.message.envelope import Message

_CLAIMS = (names.ATTEMPT, names.FIRST_FAILED_AT, names.TRIED, names.WAITING_SINCE)
_SIGNED = (*_CLAIMS, names.PUBLISHED_AT)
"""What no copy drops for want of room."""

LEAST_KEY = 16
"""Characters; a shorter key can be guessed."""


class HistoryKeys:
    """Signs with one key, and accepts signatures of it and of an earlier one.

    The signature is an HMAC-SHA256 over the signed headers, the group and topic, the message's identity and its body: it
    cannot be moved to another message or another consumer.

    Args:
        key: signs.
        before: accepted besides, while the key is being replaced; None = no other.
    """

    def __init__(self, key: str, before: str | None = None) -> None:
        self._keys = [text.encode() for text in (key, before) if text is not None]

    def __repr__(self) -> str:
        return f"HistoryKeys({len(self._keys)} keys)"

    def signed(self, headers: Mapping[str, str], place: str, identity: str, body: bytes) -> dict[str, str]:
        """Return headers of a copy with their signature.

        Args:
            headers: as the copy carries them.
            place: of the consumer group and topic.
            identity: of the message; empty if it has none.
            body: as the copy carries it.
        """
        listed = ";".join(name for name in _SIGNED if name in headers)
        mac = _mac(self._keys[0], headers, listed, place, identity, body)
        return {**headers, names.HISTORY_MAC: f"{listed}={mac}"}

    def believed(self, message: Message, place: str, identity: str) -> Message | None:
        """Return a message with the claims that are signed; None if it claims tries and no signature fits.

        The arguments are those of `signed`.
        """
        headers = message.headers
        if not any(name in headers for name in _CLAIMS):
            return message
        listed, _, found = headers.get(names.HISTORY_MAC, "").partition("=")
        macs = [_mac(key, headers, listed, place, identity, message.body) for key in self._keys]
        if not any(hmac.compare_digest(found.encode(errors="replace"), mac.encode()) for mac in macs):
            return None
        signed = listed.split(";")
        beside = [name for name in _CLAIMS if name in headers and name not in signed]
        return _without(message, beside) if beside else message


def place_of(group: str, topic: str) -> str:
    """Return the text that stands for a group's consumer of a topic in signatures."""
    return json.dumps([group, topic])


def without_history(message: Message) -> Message:
    """Return a message as if it had never been tried."""
    return _without(message, names.HISTORY)


def _without(message: Message, claims: Collection[str]) -> Message:
    own = {name: text for name, text in message.headers.items() if name not in claims}
    attempt = 1 if names.ATTEMPT in claims else message.attempt
    first = None if names.FIRST_FAILED_AT in claims else message.first_failed_at
    return replace(message, headers=own, attempt=attempt, first_failed_at=first)


def _mac(key: bytes, headers: Mapping[str, str], listed: str, place: str, identity: str, body: bytes) -> str:
    # A copy may keep other headers of its original beside those that were signed.
    history = [[name, headers.get(name)] for name in listed.split(";")]
    text = json.dumps([place, identity, hashlib.sha256(body).hexdigest(), history])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
