"""What a Redis URL says, and how one that says nothing usable is refused."""

import pytest

from oncemq.errors import ConfigError
from oncemq.redis.address import Formation, parse_address


def test_a_plain_url_names_one_server_and_a_database() -> None:
    """Port and database have their usual defaults."""
    address = parse_address("redis://localhost")
    assert (address.formation, address.places, address.database, address.tls) == (
        Formation.SERVER,
        (("localhost", 6379),),
        0,
        False,
    )
    assert parse_address("redis://cache:7000/3").database == 3


def test_credentials_are_decoded_and_given_ones_win() -> None:
    """What stands beside the URL is used instead of what stands in it."""
    address = parse_address("rediss://ann:a%40b@h")
    assert (address.username, address.password, address.tls) == ("ann", "a@b", True)
    assert parse_address("redis://ann:x@h", username="bob", password="y").password == "y"


def test_a_cluster_may_be_named_by_several_nodes() -> None:
    """One of them is enough to find the others, so that one may be away."""
    address = parse_address("redis+cluster://:pw@a:1,b:2,[::1]:3")
    assert address.places == (("a", 1), ("b", 2), ("::1", 3))


def test_sentinels_are_told_which_server() -> None:
    """The path is the service, then the database."""
    address = parse_address("rediss+sentinel://s1,s2:2/orders/5")
    assert (address.places, address.service, address.database, address.tls) == (
        (("s1", 26379), ("s2", 2)),
        "orders",
        5,
        True,
    )


def test_an_address_shows_no_password() -> None:
    """Neither for people nor for programmers."""
    address = parse_address("redis+cluster://:topsecret@h:1")
    assert "topsecret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "url",
    [
        "memcached://h",
        "redis+ring://h",
        "redis://",
        "redis://h:0",
        "redis://h:99999",
        "redis://a,b",
        "redis://h/one",
        "redis://h/0/1",
        "redis+cluster://h/1",
        "redis+sentinel://h",
        "redis://h?db=1",
        "redis://:se#cret@h",
        "redis://[::1",
    ],
)
def test_what_cannot_be_an_address_is_refused(url: str) -> None:
    """The error says what to write and does not repeat the URL."""
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert "cret" not in str(caught.value)
    assert caught.value.problems[0].advice
