"""How refusals of Kafka read: one sentence, in the names of our own options."""

import pytest
from confluent_kafka import KafkaError

from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.kafka.errors import is_denied, refusal, told, translated

UNTRUSTED = (
    "ssl://one:9093/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: "
    "broker certificate could not be verified, verify that ssl.ca.location is correctly configured "
    "(after 3ms in state SSL_HANDSHAKE, 2 identical error(s) suppressed)"
)


def test_a_certificate_that_cannot_be_verified_says_what_to_look_at() -> None:
    """The client does not say which of the three it was."""
    text = refusal(KafkaError(KafkaError._SSL, UNTRUSTED), "shop", "one:9093")
    assert text == (
        "Kafka one:9093: no connection with TLS: the broker's certificate cannot be verified: "
        "ca must hold its authority, its names the host, and its time must not be over"
    )


def test_a_wrong_login_names_the_user() -> None:
    """Whose password it is, and never the password."""
    error = KafkaError(KafkaError._AUTHENTICATION, "Authentication failed: Invalid username or password")
    assert refusal(error, "shop", "one:9092") == (
        "Kafka one:9092 refuses user 'shop': Authentication failed: Invalid username or password"
    )


@pytest.mark.parametrize("theirs", ["ssl.ca.location", "ssl.key.location", "security.protocol", "(after"])
def test_settings_of_the_client_are_told_by_our_names(theirs: str) -> None:
    """A user has written `ca`, `key` and `tls`; how long the client was in a state means nothing to people."""
    text = f"{UNTRUSTED}: see ssl.key.location, security.protocol"
    assert theirs in text
    assert theirs not in told(KafkaError(KafkaError._SSL, text))


LOST = "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported mechanisms: (n/a)"
UNKNOWN = "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN"


def test_a_connection_that_was_lost_during_a_login_is_no_refusal() -> None:
    """The client calls both an authentication failure; only the broker's own word is one."""
    lost = KafkaError(KafkaError._AUTHENTICATION, LOST)
    assert not is_denied(lost)
    assert isinstance(translated(lost, "asking", "one:9092"), BrokerUnavailable)
    refused = KafkaError(KafkaError._AUTHENTICATION, UNKNOWN)
    assert is_denied(refused)
    assert isinstance(translated(refused, "asking", "one:9092"), BrokerRefused)
