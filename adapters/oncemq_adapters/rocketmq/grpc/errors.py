"""Classifies a proxy's answers and gRPC's errors: trying again may help, or will not."""

from concurrent.futures import CancelledError
from typing import Any

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Unroutable

OK = 20000
NOTHING_NOW = (40404, 40401)
"""No message came in time."""

NO_TOPIC = 40402
_OTHER_TYPE, _NO_TYPE = 40014, "expected type is UNSPECIFIED"
"""A proxy that finds no topic may say that its type is another one than that of the message."""
NOT_OURS_NOW = (40013, 40400)
"""The receipt handle has expired, or is unknown."""

FAILED_INSIDE = SETTINGS_MISSING = 50001
"""Any exception in the proxy: one that has not our settings yet, or a message that it cannot translate."""
_NO_SETTINGS = '"settings" is null'
LEASE_REFUSED = 40011
_UNAVAILABLE_FROM = 50000
_BUSY = 42900
_LONGEST_TEXT = 300
_OF_ANOTHER = ("CERTIFICATE_VERIFY_FAILED", "Peer name", "Hostname Verification Check failed")
"""What gRPC says of a certificate that proves nothing; it has no code of its own."""

_REFUSING = ("UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED")
_MEANINGS = {
    NO_TOPIC: "it has no such topic",
    40100: "it does not permit that: check username and password",
    40300: "it does not permit that: check what the account may do",
    LEASE_REFUSED: "the proxy grants no such lease: write lease: 10s or more, and less than 12h, at the broker",
    40018: "the poll is shorter than the proxy allows: write poll: 5s or more at the broker",
}


class ProxyRefused(BrokerRefused):
    """An answer that will be the same next time.

    Attributes:
        code: the protocol's number.
    """

    def __init__(self, code: int, text: str) -> None:
        meaning = _MEANINGS.get(code)
        super().__init__(
            f"RocketMQ's proxy refused{f': {meaning}' if meaning else ''} (code {code}: {_short(text)})"
        )
        self.code = code


class NoSuchTopic(ProxyRefused, Unroutable):
    """The topic does not exist; messages can be sent when it has been made."""


class ProxyUnable(BrokerUnavailable):
    """An answer that may be another one next time.

    Attributes:
        code: the protocol's number.
        about_a_message: of an answer to a receive: the proxy failed at a message that it was to deliver.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"RocketMQ's proxy cannot do that now (code {code}: {_short(text)})")
        self.code = code
        self.about_a_message = code == FAILED_INSIDE and _NO_SETTINGS not in text


def insist(status: Any) -> None:
    """Return if an answer says that all is well.

    Raises:
        BrokerError: it does not.
    """
    error = meaning_of(status)
    if error is not None:
        raise error


def meaning_of(status: Any) -> BrokerError | None:
    """Return the error that a status is; None if all is well."""
    code = int(status.code)
    if code == OK:
        return None
    if code == _BUSY or code >= _UNAVAILABLE_FROM:
        return ProxyUnable(code, status.message)
    missing = code == NO_TOPIC or (code == _OTHER_TYPE and _NO_TYPE in status.message)
    return (NoSuchTopic if missing else ProxyRefused)(code, status.message)


def surfaced(error: BaseException, where: str) -> BrokerError:
    """Return any error of a call as a user shall see it.

    Args:
        error: what was raised.
        where: the addresses that were asked; never credentials.
    """
    if isinstance(error, BrokerError):
        return error
    code = getattr(error, "code", None)
    if callable(code):
        name = getattr(code(), "name", "UNKNOWN")
        text = f"{name}: {_short(error.details() or '')}" if hasattr(error, "details") else name
        if any(mark in text for mark in _OF_ANOTHER):
            return BrokerRefused(
                f"TLS with RocketMQ's proxy at {where} failed: its certificate does not prove that it is this host – "
                f"check ca: and the host's name, also in addresses: ({text})"
            )
        if name in _REFUSING:
            return BrokerRefused(f"RocketMQ's proxy at {where} refused: {text} – check username and password")
        return BrokerUnavailable(f"RocketMQ's proxy at {where} cannot be reached: {text}")
    if isinstance(error, CancelledError):
        return BrokerUnavailable(f"the connection to RocketMQ's proxy at {where} was closed")
    return BrokerUnavailable(f"RocketMQ's proxy at {where}: {type(error).__name__}: {_short(str(error))}")


def _short(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_TEXT]
