"""How refusals of Kafka read: one sentence, in the names of our own options."""

import pytest
from confluent_kafka import KafkaError

from oncemq_adapters.kafka.errors import refusal, told

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
