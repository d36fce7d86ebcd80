"""Translates Kafka's errors into ours: what may work later, what never will, and what has nowhere to go."""

import re
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Unroutable

NOWHERE = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_DENIED = frozenset(
    {
        *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
        *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED),
        *(KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM),
        KafkaError._SSL,
    }
)
_UNANSWERED = "mechanism handshake failed: Local: "
"""How the client words the end of a connection during a login, which it calls a failed authentication, too."""
_SINCE = re.compile(r" \(after \d+ms in state [A-Z_]+(, \d+ identical error\(s\) suppressed)?\)")
_OURS = {
    "ssl.ca.location": "ca",
    "ssl.certificate.location": "cert",
    "ssl.key.location": "key",
    "security.protocol": "tls",
    "sasl.mechanisms": "sasl",
    "sasl.mechanism": "sasl",
}
"""What librdkafka's settings are called here."""
_ASKS = ("alert bad certificate", "alert certificate required")
"""What a broker answers to a client that shows no certificate."""
_REFUSED = {
    *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.TOPIC_EXCEPTION),
    *(KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_REPLICATION_FACTOR),
    *(KafkaError.INVALID_PARTITIONS, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError._INVALID_ARG),
    *(KafkaError.UNSUPPORTED_VERSION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_MSG_SIZE),
}


def error_of(exception: BaseException | None) -> KafkaError | None:
    """Return the error inside confluent-kafka's exception; None for another one."""
    if isinstance(exception, KafkaException) and exception.args:
        found = exception.args[0]
        return found if isinstance(found, KafkaError) else None
    return None


def is_denied(error: KafkaError) -> bool:
    """Return whether a broker has said so of who we are, or may do; a connection that was lost during a login has not."""
    return error.code() in _DENIED and _UNANSWERED not in error.str()


def told(error: KafkaError) -> str:
    """Return the client's words with our options instead of its settings."""
    text = _SINCE.sub("", error.str())
    for theirs, ours in _OURS.items():
        text = text.replace(theirs, ours)
    if any(alert in text for alert in _ASKS):
        return f"{text} – it asks clients for a certificate: write cert and key"
    return text


def refusal(error: KafkaError, user: str, where: str) -> str:
    """Return in one sentence why brokers and we do not come together; `is_denied` is true of `error`."""
    if error.code() != KafkaError._SSL:
        return f"Kafka {where} refuses user {user!r}: {told(error)}"
    text = told(error)
    if "certificate verify failed" in text:
        # The client does not say which of the three it is.
        text = "the broker's certificate cannot be verified: ca must hold its authority, its names the host, and its time must not be over"
    return f"Kafka {where}: no connection with TLS: {text}"


def translated(error: KafkaError, doing: str, where: str) -> BrokerError:
    """Return our error for Kafka's.

    Args:
        error: Kafka's.
        doing: what failed, such as "publishing to 'orders'".
        where: the hosts.
    """
    text = f"{doing} at Kafka {where}: {told(error)}"
    if error.code() in NOWHERE:
        return Unroutable(text)
    if is_denied(error) or error.code() in _REFUSED:
        return BrokerRefused(text)
    return BrokerUnavailable(text)


def surfaced(exception: Exception, doing: str, where: str) -> BrokerError:
    """Return our error for an exception of the client."""
    if isinstance(exception, BrokerError):
        return exception
    error = error_of(exception)
    if error is not None:
        return translated(error, doing, where)
    if isinstance(exception, BufferError):
        return BrokerUnavailable(f"{doing} at Kafka {where}: too much waits for its confirmation")
    refused: Any = exception
    return BrokerRefused(f"{doing} at Kafka {where}: {type(exception).__name__}: {refused}")
