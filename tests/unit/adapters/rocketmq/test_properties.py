"""Properties: headers survive whatever they hold, keys are RocketMQ's, and nothing of ours shows to handlers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oncemq.errors import BrokerRefused
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq.properties import (
    check_size,
    for_next_hop,
    for_publishing,
    for_replay,
    read_message,
    readable_headers,
    with_headers,
)
from oncemq_adapters.rocketmq_client.properties import (
    LONGEST_PROPERTIES,
    from_text,
    to_text,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def there_and_back(message: OutgoingMessage) -> dict[str, str]:
    """Return the properties as another client reads them from the broker, which drops what is empty."""
    found = from_text(to_text(for_publishing(message, NOW, "ID")))
    return {name: value for name, value in found.items() if name and value}


@given(some.dictionaries(some.text(), some.text(), max_size=5))
def test_headers_arrive_unchanged(headers: dict[str, str]) -> None:
    """Empty ones, separators, names that mean something to RocketMQ, lone surrogates: all of them."""
    headers = {name: value for name, value in headers.items() if not name.startswith(names.PREFIX)}
    headers.pop("tags", None)
    read = readable_headers(there_and_back(OutgoingMessage(b"x", headers)))
    assert {name: read.get(name) for name in headers} == headers


@pytest.mark.parametrize(
    "name", ["KEYS", "TAGS", "DELAY", "UNIQ_KEY", "WAIT", "TIMER_DELAY_MS", "__STARTDELIVERTIME"]
)
def test_a_header_cannot_give_orders_to_the_broker(name: str) -> None:
    """A header that is called like one of RocketMQ's own properties travels as a header alone."""
    properties = there_and_back(OutgoingMessage(b"x", {name: "5"}))
    assert properties.get(name) != "5"
    assert readable_headers(properties)[name] == "5"


@pytest.mark.parametrize(
    "key", ["a", "two words", " edge ", "tab\there", "new\nline", "ordér-🚕", "a\x01b", ""]
)
def test_any_key_arrives(key: str) -> None:
    """A key that RocketMQ would split or lose is read back whole."""
    message = read_message("t", b"x", there_and_back(OutgoingMessage(b"x", key=key)), 0, 1)
    assert message.keys == (key,)


def test_several_keys_are_separated_by_blanks() -> None:
    """As Java's producers write them."""
    assert read_message("t", b"x", {"KEYS": "a b  c"}, 0, 1).keys == ("a", "b", "c")


def test_tags_are_a_header() -> None:
    """Tags are written and read under the header `tags`."""
    properties = there_and_back(OutgoingMessage(b"x", {"tags": "paid"}))
    assert properties["TAGS"] == "paid"
    assert readable_headers(properties)["tags"] == "paid"


def test_history_does_not_travel_on() -> None:
    """A copy obeys none of the orders that its original did: delays, transactions, retries."""
    old = {
        "DELAY": "3",
        "TRAN_MSG": "true",
        "TIMER_DELAY_MS": "9",
        "RECONSUME_TIME": "2",
        "tenant": "a",
        "KEYS": "k",
    }
    assert for_next_hop(old, {"x": ""}) == {"tenant": "a", "KEYS": "k", "oncemq-escaped": '{"x": ""}'}


def test_a_later_header_wins_over_an_escaped_one() -> None:
    """What is added replaces what was there, in whichever way either travels."""
    first = with_headers({}, {"x": "", "y": "plain"})
    second = with_headers(first, {"x": "plain", "y": ""})
    assert readable_headers(second) == {"x": "plain", "y": ""}


def test_a_replay_begins_again() -> None:
    """Attempts and causes stay behind; the user's headers, keys and tags do not."""
    dead = with_headers(
        {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U"}, {names.ATTEMPT: "4", names.REASON: "r", "a": ""}
    )
    fresh = for_replay(dead)
    assert readable_headers(fresh) == {"a": "", "tags": "t"}
    assert (fresh["KEYS"], fresh["UNIQ_KEY"]) == ("k", "U")


@pytest.mark.parametrize("text", ["[", '{"a"', "[1]", '{"a": 1}', "[" * 5000])
def test_forged_escapes_are_nothing(text: str) -> None:
    """Someone else's property of that name crashes nothing."""
    assert readable_headers({"oncemq-escaped": text, "b": "c"}) == {"b": "c"}
    assert read_message("t", b"x", {"oncemq-keys": text, "KEYS": "k"}, 0, 1).keys == ("k",)


def test_too_many_headers_are_refused_here() -> None:
    """The broker would answer with words about something else."""
    with pytest.raises(BrokerRefused, match=f"{LONGEST_PROPERTIES} at most"):
        check_size({"a": "x" * LONGEST_PROPERTIES})


def test_rocketmqs_own_count_of_attempts_is_used_where_ours_is_missing() -> None:
    """A message that a Java member gave back has its attempts in its own field."""
    assert read_message("t", b"x", {}, 0, 3).attempt == 3
    assert read_message("t", b"x", {names.ATTEMPT: "5"}, 0, 3).attempt == 5


def test_the_id_of_the_producers_client_is_a_messages_id() -> None:
    """The broker's own id, which a Java member's retry carries, is another one than the first try had."""
    given_back = {"UNIQ_KEY": "7F000001", "ORIGIN_MESSAGE_ID": "offset", "RETRY_TOPIC": "t"}
    assert read_message("t", b"x", given_back, 0, 2).message_id == "7F000001"


def test_a_message_without_an_id_of_its_client_has_the_brokers() -> None:
    """The id that the broker noted when the message was given back is better than none."""
    assert read_message("t", b"x", {"ORIGIN_MESSAGE_ID": "offset"}, 0, 2).message_id == "offset"
