"""What the broker's replies mean in our words."""

import socket
import ssl

import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import parse_address

ADDRESS = parse_address("amqp://points:hunter2@rabbit:5673/shop", {})
HOST = ADDRESS.hosts[0]


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (AMQPConnectionError("ConnectionRefusedError(111, 'Connection refused')"), BrokerUnavailable, "rabbit:5673: connection refused"),
        (socket.gaierror(-2, "Name or service not known"), BrokerUnavailable, "cannot find the RabbitMQ host 'rabbit'"),
        (TimeoutError("timed out"), BrokerUnavailable, "no answer in time"),
        (ProbableAuthenticationError("(403) 'ACCESS_REFUSED'"), BrokerRefused, "user 'points'"),
        (ProbableAccessDeniedError("(530) 'NOT_ALLOWED - vhost shop not found'"), BrokerRefused, "vhost shop not found"),
        (IncompatibleProtocolError("x"), BrokerRefused, "does not speak AMQP"),
        (ssl.SSLError(1, "wrong version number"), BrokerRefused, "TLS"),
    ],
)  # fmt: skip
def test_failed_connections(error: Exception, kind: type[Exception], says: str) -> None:
    """Each failure is told apart: what may pass from what will not, without the password."""
    found = faults.connecting(error, ADDRESS, HOST)
    assert type(found) is kind
    assert says in str(found)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': "
                "received 'quorum' but current is 'classic'"
            ),
            ("x-queue-type", "'quorum'", "'classic'"),
        ),
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
                "received the value '5' of type 'signedint' but current is none"
            ),
            ("x-message-ttl", "'5'", "none"),
        ),
        ("PRECONDITION_FAILED - something else", None),
    ],
)
def test_differences(text: str, expected: tuple[str, str, str] | None) -> None:
    """The reply to a different declaration is taken apart; other replies are not."""
    assert faults.difference(text) == expected


def test_a_missing_queue_says_what_to_do() -> None:
    """404 becomes BrokerRefused with the advice."""
    error = ChannelClosedByBroker(404, "NOT_FOUND - no queue 'orders' in vhost '/'")
    found = faults.declaring(error, "queue", "orders", "declare it")
    assert isinstance(found, BrokerRefused)
    assert str(found) == "the queue 'orders' does not exist; declare it"


@pytest.mark.parametrize(
    "text",
    [
        "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible",
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
    ],
)
def test_a_queue_on_a_node_that_is_away_is_not_missing(text: str) -> None:
    """Although RabbitMQ answers with the same code: it is there again with its node, messages and all."""
    error = ChannelClosedByBroker(404, text)
    assert not faults.is_missing(error)
    assert type(faults.declaring(error, "queue", "q", "declare it")) is faults.NodeAway


def test_a_locked_queue_may_be_free_later() -> None:
    """405 is BrokerUnavailable: someone else holds it exclusively for now."""
    error = ChannelClosedByBroker(405, "RESOURCE_LOCKED - cannot obtain exclusive access")
    assert isinstance(faults.declaring(error, "queue", "orders", ""), BrokerUnavailable)
