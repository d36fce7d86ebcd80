"""URL and broker options."""

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import ConfigError
from oncemq_adapters.rabbitmq.connection.address import Host, parse_address


def problem(url: str, **options: Any) -> str:
    """Return the text of the ConfigError that these cause."""
    with pytest.raises(ConfigError) as caught:
        parse_address(url, options)
    return str(caught.value)


def test_defaults() -> None:
    """A bare URL means the default port, virtual host and user."""
    address = parse_address("amqp://localhost", {})
    assert address.hosts == (Host("localhost", 5672),)
    assert (address.virtual_host, address.username, address.password) == ("/", "guest", "guest")
    assert address.queue_type == "quorum"
    assert address.tls is None


def test_credentials_and_virtual_host_are_decoded() -> None:
    """Percent signs in user, password and virtual host are decoded once."""
    address = parse_address("amqp://a%40b:p%2Fw%25@h:1/my%2Fhost", {})
    assert (address.username, address.password, address.virtual_host) == ("a@b", "p/w%", "my/host")


@pytest.mark.parametrize("path", ["", "/", "/%2F"])
def test_the_default_virtual_host(path: str) -> None:
    """No path, a bare slash and an encoded slash all mean `/`."""
    assert parse_address(f"amqp://h{path}", {}).virtual_host == "/"


def test_options_win_over_the_url() -> None:
    """`username` and `password` replace what the URL says."""
    address = parse_address("amqp://old:secret@h/", {"username": "new", "password": "other"})
    assert (address.username, address.password) == ("new", "other")


def test_query_times_are_seconds() -> None:
    """`?heartbeat=20` is what AMQP URLs write; our own form works too."""
    assert parse_address("amqp://h/?heartbeat=20", {}).heartbeat == timedelta(seconds=20)
    assert parse_address("amqp://h/?heartbeat=20s", {}).heartbeat == timedelta(seconds=20)


def test_a_frozen_broker_is_noticed_within_20_seconds_by_default() -> None:
    """Pika notices silence after 2 x (heartbeat + 5 s)."""
    assert 2 * (parse_address("amqp://h", {}).heartbeat + timedelta(seconds=5)) < timedelta(seconds=20)


def test_several_hosts() -> None:
    """`hosts` adds addresses; the URL's comes first and none comes twice."""
    address = parse_address("amqp://a:1/", {"hosts": ["b:2", "c", "a:1", "[::1]:3"]})
    assert address.hosts == (Host("a", 1), Host("b", 2), Host("c", 5672), Host("::1", 3))
    assert str(address.hosts[-1]) == "[::1]:3"


def test_the_password_never_shows() -> None:
    """Neither `repr` nor any error holds the password."""
    assert "hunter2" not in repr(parse_address("amqp://u:hunter2@h/", {}))
    for url in ("amqp://u:hunter2@h:no/", "http://u:hunter2@h/", "amqp://u:hunter2@h/?heartbaet=1"):
        assert "hunter2" not in problem(url)


def test_unknown_option_has_a_suggestion() -> None:
    """A typo is answered with the name that was meant."""
    assert "did you mean 'heartbeat'?" in problem("amqp://h", heartbaet="5s")


def test_every_problem_is_told() -> None:
    """Two wrong options are two problems."""
    text = problem("amqp://h", heartbeat=5, queue_type="mirrored")
    assert "like 10s" in text
    assert "quorum, classic" in text


@pytest.mark.parametrize("url", ["redis://h", "amqp://h:99999999", "h:5672"])
def test_another_url_is_refused(url: str) -> None:
    """Another scheme or an impossible port is a ConfigError, not a traceback."""
    problem(url)


def test_tls_checks_the_host_by_default() -> None:
    """Amqps verifies certificate and host name, on port 5671."""
    address = parse_address("amqps://h/", {})
    assert address.tls is not None
    assert address.tls.check_hostname
    assert address.tls.verify_mode == ssl.CERT_REQUIRED
    assert address.hosts == (Host("h", 5671),)


def test_tls_can_be_told_not_to_verify() -> None:
    """`verify: false` turns both checks off."""
    address = parse_address("amqps://h/", {"verify": False})
    assert address.tls is not None
    assert address.tls.verify_mode == ssl.CERT_NONE


def test_tls_files_must_be_usable(tmp_path: Path) -> None:
    """A file that is no certificate is a ConfigError."""
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    assert "TLS files" in problem("amqps://h/", ca=str(file))
    assert "TLS files" in problem("amqps://h/", ca=str(tmp_path / "none.pem"))


def test_tls_options_need_amqps() -> None:
    """Options for TLS on a plain URL are refused: they would do nothing."""
    assert "amqps://" in problem("amqp://h", ca="ca.pem")
