"""What a URL and options of Kafka mean, and how errors of them read."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerRefused, ConfigError
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.checks import check_consumer
from oncemq_adapters.kafka.names import parse_topic, place_of
from support.facts import facts_of


def problems(url: str = "kafka://localhost", **options: Any) -> str:
    """Return the text of the error."""
    with pytest.raises(ConfigError) as caught:
        parse_address(url, options)
    return str(caught.value)


def test_a_url_names_several_hosts() -> None:
    """Hosts are separated by commas; the port is Kafka's own where none is written."""
    address = parse_address("kafka://one,two:9093", {"hosts": ["three"]})
    assert address.hosts == ("one:9092", "two:9093", "three:9092")


def test_a_login_is_shown_in_no_text() -> None:
    """The password reaches the client, and nothing that people read."""
    address = parse_address("kafka://shop:s%40cret@one", {"sasl": "SCRAM-SHA-256"})
    settings = address.client("shop")
    assert (settings["security.protocol"], settings["sasl.password"]) == ("SASL_PLAINTEXT", "s@cret")
    assert "s@cret" not in repr(address)


def test_half_a_login_is_refused() -> None:
    """It would be left out without a word."""
    assert "'password' is missing" in problems(username="shop")


def test_a_broken_port_is_refused_without_the_password() -> None:
    """What stands where a port is expected may be a part of a password."""
    assert "secret" not in problems("kafka://localhost:secret")


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ({"acks": "all"}, "always confirmed"),
        ({"auto_offset_reset": "earliest"}, "start: first"),
        ({"enable_auto_commit": True}, "committed by the framework"),
        ({"bootstrap_servers": "one"}, "into the URL"),
        ({"compresion": "lz4"}, "did you mean 'compression'"),
        ({"ca": "/nowhere.pem"}, "does not exist"),
        ({"protocol": "consumer", "session_timeout": "6s"}, "leave out session_timeout"),
        ({"cert": __file__}, "'key' is missing"),
        ({"key": __file__}, "'cert' is missing"),
        ({"retry_retention": "10m"}, "from 1h"),
    ],
)
def test_an_option_that_cannot_work_says_what_to_write(option: dict[str, Any], advice: str) -> None:
    """Names of other clients are answered with ours."""
    assert advice in problems(**option)


def test_a_session_in_the_url_is_refused_as_one_among_the_options() -> None:
    """Brokers would refuse such a member of a group with their own protocol at each start."""
    assert "leave out session_timeout" in problems("kafka://one?protocol=consumer&session_timeout=6s")


def test_a_file_that_is_no_certificate_is_one_clear_error(tmp_path: Path) -> None:
    """The client reads the files of TLS when it is made, before it connects."""
    garbage = tmp_path / "ca.pem"
    garbage.write_text("no certificate")
    with pytest.raises(BrokerRefused, match=r"no client for Kafka one:9092: .*ca"):
        Administration(parse_address("kafka://one", {"ca": str(garbage)}), "app")


def test_a_pause_longer_than_retries_are_kept_is_refused() -> None:
    """A retry that is removed before it is due would be lost."""
    address = parse_address("kafka://one", {"retry_retention": "2d"})
    facts = facts_of("orders", "reports", longest_pause=timedelta(days=2))
    (problem,) = check_consumer(facts, address)
    assert (problem.severity, problem.where) == (Severity.ERROR, "broker.retry_retention")
    assert list(check_consumer(replace(facts, longest_pause=timedelta(days=1)), address)) == []


def test_the_brokers_own_protocol_sets_no_session() -> None:
    """Brokers refuse a member of such a group that sets its session, heartbeat or assignment."""
    settings = parse_address("kafka://one", {"protocol": "consumer"}).member_of("group", "app", "consumer")
    assert settings["group.protocol"] == "consumer"
    assert settings.keys().isdisjoint(
        {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    )


def test_a_static_member_has_a_name_for_each_consumer() -> None:
    """Two consumers of one process are two members."""
    address = parse_address("kafka://one", {"member": "host-1"})
    found = {address.member_of("g", "app", name)["group.instance.id"] for name in ("a", "b")}
    assert found == {"host-1-a", "host-1-b"}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"topic_name": "a b"}, "topic_name: a-b"),
        ({"start": "yesterday"}, "write first, last, or a time with its zone"),
        ({"start": "2026-01-31T00:00:00"}, "write first, last, or a time with its zone"),
        ({"declare": True}, "create: false"),
    ],
)
def test_a_topic_that_cannot_be_says_what_to_write(options: dict[str, Any], advice: str) -> None:
    """Kafka's rules for names, and starts without a zone."""
    with pytest.raises(ConfigError, match=advice):
        parse_topic("orders", options)


def test_a_group_is_a_part_of_topics_names() -> None:
    """A group that no topic may be named after is refused before anything is made."""
    with pytest.raises(ConfigError, match="write another group: at consumer 'c'"):
        place_of(Subscription("c", "orders", "a/b"))
