"""All errors that this client raises, as one tree with one root.

RocketMQError
├── NoReply                  no reply to a request came in time; it may still take effect
├── RocketMQUnavailable      cannot be reached now, or is busy; trying again may help
│   └── MalformedFrame       what came is not RocketMQ's protocol
└── RocketMQRefused          refused; trying the same again will not help
    └── Denied               a broker's or name server's answer, with its code
"""

from collections.abc import Mapping

from oncemq_adapters.rocketmq_client import codes

_LONGEST_REMARK = 300
_MEANINGS = {
    codes.NO_PERMISSION: "it does not permit that: check username and password, and what the account may do",
    codes.NO_TOPIC: "it has no such topic",
    codes.NO_GROUP: "it has no such group: create it with `mqadmin updateSubGroup`",
    codes.ILLEGAL_MESSAGE: "it does not take the message",
}


class RocketMQError(Exception):
    """The root of every error of this client."""


class NoReply(RocketMQError):
    """No reply to a request came in time; the request may still take effect."""


class RocketMQUnavailable(RocketMQError):
    """A name server or broker cannot be reached now, or is busy; trying again may help."""


class RocketMQRefused(RocketMQError):
    """It refused; trying the same again will not help."""


class MalformedFrame(RocketMQUnavailable):
    """The data is not RocketMQ's protocol; its connection can no longer be used."""


class Denied(RocketMQRefused):
    """An answer with another code than success.

    Attributes:
        code: the protocol's number.
        fields: what came with it.
    """

    def __init__(self, asked: str, code: int, remark: str, fields: Mapping[str, str]) -> None:
        remark = " ".join(remark.split())[:_LONGEST_REMARK]
        meaning = _MEANINGS.get(code)
        super().__init__(
            f"RocketMQ at {asked} refused{f': {meaning}' if meaning else ''} (code {code}: {remark})"
        )
        self.code = code
        self.remark = remark
        self.fields = fields


def is_forbidden(denied: Denied) -> bool:
    """Return whether the account lacks a right, as RocketMQ 5 says it or as 4.x does."""
    return denied.code == codes.NO_PERMISSION or "AclException" in denied.remark


def unreachable(what: str, address: str, error: BaseException) -> RocketMQUnavailable:
    """Return the error for a peer that cannot be reached."""
    return RocketMQUnavailable(f"RocketMQ {what} at {address} cannot be reached: {_reason(error)}")


def lost(address: str, why: BaseException | str) -> RocketMQUnavailable:
    """Return the error for a connection that ended before an answer came."""
    reason = why if isinstance(why, str) else _reason(why)
    return RocketMQUnavailable(f"the connection to RocketMQ at {address} was lost: {reason}")


def surfaced(error: Exception) -> RocketMQError:
    """Return the error as a user of the adapter shall see it: busy brokers are worth another try."""
    if isinstance(error, Denied) and error.code in codes.BUSY:
        return RocketMQUnavailable(
            f"RocketMQ is too busy to accept the message (code {error.code}: {error.remark})"
        )
    if isinstance(error, RocketMQError):
        return error
    return RocketMQUnavailable(f"RocketMQ: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, RocketMQError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
