"""Turns pika's errors and the broker's reply texts into ours, in one table; credentials never get into them."""

import re
import socket
import ssl
from typing import Any

from pika.exceptions import (
    AMQPError,
    AMQPHeartbeatTimeout,
    ChannelClosed,
    ConnectionBlockedTimeout,
    ConnectionClosed,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection.address import Address, Host

_DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<arg>[^']+)' for (?P<what>queue|exchange) '(?P<name>[^']*)'.*?"
    r"received (?P<wanted>.+?) but current is (?P<current>.+?)$"
)
_VALUE = re.compile(r"the value (.+?) of type .*")
_TRY_LATER = frozenset({311, 320, 405, 541})
"""Reply codes that pass: content too large for now, connection forced, resource locked, internal error."""

_PROVOKED = frozenset({501, 502, 503, 505})
"""Reply codes with which RabbitMQ ends a connection because of what it was sent: a frame error, a syntax error …"""

DIFFERENT = 406
MISSING = 404
FORBIDDEN = 403

_AWAY = re.compile(r"home node .* is down or inaccessible|process is stopped by supervisor")
"""What the text of a 404 says of a queue that is there again when its node is."""


class NodeAway(BrokerUnavailable):
    """A queue lies on a node of the cluster that is away."""


class Provoked(BrokerUnavailable):
    """RabbitMQ ended the connection, with all that it carried, because of something that it was sent."""


class ClosedFor(BrokerRefused):
    """RabbitMQ closed the channel, with all that it carried, because of something that it was sent."""


class Unconfirmed(BrokerUnavailable):
    """RabbitMQ did not confirm in time, although it accepts messages; it may or may not have stored this one."""


class NotTaken(BrokerUnavailable):
    """RabbitMQ confirmed negatively: a full queue, or trouble inside of it."""


def connecting(error: BaseException, address: Address, host: Host) -> BrokerError:
    """Return the error for a failed connection attempt."""
    if isinstance(error, ProbableAuthenticationError):
        return BrokerRefused(
            f"RabbitMQ at {host} refused the login of user {address.username!r}; check username and password"
        )
    if isinstance(error, ProbableAccessDeniedError):
        return BrokerRefused(
            f"RabbitMQ at {host} gives user {address.username!r} no access to the virtual host "
            f"{address.virtual_host!r}: {_reply(error)}; create it or grant permissions (rabbitmqctl set_permissions)"
        )
    if isinstance(error, IncompatibleProtocolError):
        return BrokerRefused(
            f"{host} does not speak AMQP 0-9-1; check the port, and amqp:// against amqps://"
        )
    if isinstance(error, ssl.SSLError):
        return BrokerRefused(f"TLS with {host} failed: {error}; check ca, the host's name and the port")
    if isinstance(error, socket.gaierror):
        return BrokerUnavailable(
            f"cannot find the RabbitMQ host {host.name!r}; check the URL and the name service"
        )
    return BrokerUnavailable(
        f"cannot reach RabbitMQ at {host}: {_cause(error)}; is it running, and is the address right?"
    )


def lost(error: BaseException | None, host: Host | None = None) -> BrokerUnavailable:
    """Return why an open connection or channel is gone."""
    at = f" at {host}" if host else ""
    provoked = isinstance(error, ConnectionClosed) and error.reply_code in _PROVOKED
    kind = Provoked if provoked else BrokerUnavailable
    return kind(f"the connection to RabbitMQ{at} is lost: {_cause(error)}")


def declaring(error: AMQPError, what: str, name: str, advice: str) -> BrokerError:
    """Return why a queue or exchange cannot be used; `advice` is for one that is declared differently."""
    if not isinstance(error, ChannelClosed | ConnectionClosed):
        return lost(error)
    code, text = error.reply_code, str(error.reply_text)
    if is_missing(error):
        return BrokerRefused(f"the {what} {name!r} does not exist; {advice}")
    if code == MISSING:
        return NodeAway(f"the {what} {name!r} lies on a node of the RabbitMQ cluster that is away: {text}")
    if code == DIFFERENT and (found := difference(text)):
        argument, wanted, current = found
        return BrokerRefused(
            f"the {what} {name!r} exists and is declared differently: {argument} is {current}, "
            f"this app declares {wanted}; {advice}"
        )
    if code == FORBIDDEN:
        return BrokerRefused(
            f"no permission for the {what} {name!r}: {text}; grant it with rabbitmqctl set_permissions"
        )
    kind = BrokerUnavailable if code in _TRY_LATER else BrokerRefused
    return kind(f"RabbitMQ refused the {what} {name!r}: {text} ({code})")


def is_missing(error: Any) -> bool:
    """Return whether a queue or exchange does not exist; one on a node that is away is not missing."""
    return error.reply_code == MISSING and not _AWAY.search(str(error.reply_text))


def difference(text: str) -> tuple[str, str, str] | None:
    """Return (argument, wanted, current) of a reply that says how a declaration differs."""
    found = _DIFFERENCE.search(text)
    if found is None:
        return None
    return found["arg"], _plain(found["wanted"]), _plain(found["current"])


def _plain(text: str) -> str:
    value = _VALUE.fullmatch(text)
    return value[1] if value else text


def _reply(error: BaseException) -> str:
    found = re.search(r"\((\d+)\) ['\"](.*)['\"]", str(error))
    return found[2] if found else "no reason given"


def _cause(error: BaseException | None) -> str:
    if isinstance(error, ConnectionClosed | ChannelClosed):
        return f"{error.reply_text} ({error.reply_code})"
    if isinstance(error, AMQPHeartbeatTimeout | ConnectionBlockedTimeout):
        return "it did not answer within the heartbeat"
    text = str(error) or repr(error) if error is not None else "closed"
    for sign, words in _SIGNS:
        if sign in text or sign in repr(error):
            return words
    return text


_SIGNS = (
    ("Connection refused", "connection refused"),
    ("AMQPConnectorStackTimeout", "it accepted the connection and then did not answer"),
    ("SocketTimeout", "no answer in time"),
    ("timed out", "no answer in time"),
    ("No route to host", "no route to host"),
    ("Network is unreachable", "network is unreachable"),
    ("reset by peer", "connection reset"),
    ("EOF", "the stream was cut"),
    ("Stream connection lost", "the stream was cut"),
)
