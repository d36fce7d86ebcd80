"""What is written about a RocketMQ: understood, or refused in words that say what to write."""

from datetime import timedelta
from typing import Any

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.adapter import Subscription
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq import checks
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.checks import check_consumer
from oncemq_adapters.rocketmq.names import group_of, parse_topic, read_topic
from oncemq_adapters.rocketmq.native.options import NativeOptions
from oncemq_adapters.rocketmq.remoting.consumer.group_member import moves
from oncemq_adapters.rocketmq_client.errors import RocketMQRefused
from oncemq_adapters.rocketmq_client.producer import delay_properties
from support.facts import facts_of


def test_several_name_servers() -> None:
    """Comma or semicolon, in the URL or as hosts; the port may be left out."""
    address = parse_address("rocketmq://user:p%40ss@one:1,two", {"hosts": ["three:3"]})
    assert address.name_servers == ("one:1", "two:9876", "three:3")
    assert (address.username, address.password) == ("user", "p@ss")
    assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("rocketmq://host:port", {}, "invalid host or port"),
        ("rocketmq://user@host", {}, "'password' is missing"),
        ("rocketmq://host", {"verify": False, "tls": False}, "write tls: true"),
        ("rocketmq://host", {"addresses": {"a": "b"}}, "where brokers are reached"),
        ("rocketmq://host", {"namspace": "x"}, "did you mean 'namespace'"),
        ("rocketmq://host", {"ca": "/nowhere.pem"}, "TLS files cannot be used"),
        ("rocketmq://host", {"trace": "a b"}, "trace must be true, false or a topic of RocketMQ"),
        ("rocketmq://host", {"trace": 1}, "write trace: true"),
    ],
)
def test_what_cannot_be_an_address(url: str, options: dict[str, Any], said: str) -> None:
    """Each is refused before anything is connected."""
    with pytest.raises(ConfigError, match=said):
        parse_address(url, options)


@pytest.mark.parametrize(
    ("url", "options", "topic"),
    [
        ("rocketmq://host", {}, ""),
        ("rocketmq://host", {"trace": True}, "RMQ_SYS_TRACE_TOPIC"),
        ("rocketmq://host?trace=true", {}, "RMQ_SYS_TRACE_TOPIC"),
        ("rocketmq://host", {"trace": "my-trace"}, "my-trace"),
    ],
)
def test_the_trace_goes_to_the_brokers_own_topic_or_another(
    url: str, options: dict[str, Any], topic: str
) -> None:
    """`true` is the topic that Java's clients have."""
    assert parse_address(url, options).trace == topic


def test_librocketmq_refuses_a_trace() -> None:
    """In words, with the driver that has it."""
    with pytest.raises(
        ConfigError, match=r"trace cannot be used with rocketmq\+native://: .* use rocketmq://"
    ):
        NativeOptions.read({"trace": True})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic_name": "order.paid"}, "write topic_name: order-paid"),
        ({"tags": ["a||b"]}, "cannot be a tag"),
        ({"tags": "a | b"}, "cannot be a tag"),
        ({"tags": ["a"], "filter": "a > 1"}, "by tags or by an expression, not by both"),
        ({"allocation": "MachineRoom"}, "'MachineRoom' is an unknown rule of allocation"),
        ({"start": "yesterday"}, "write first, last, or a time"),
        ({"start": "2026-01-01T00:00:00"}, "with its zone"),
        ({"queues": 0}, "from 1 to 1024"),
        ({"fifo": "yes"}, "true or false"),
    ],
)
def test_what_a_topic_cannot_be(options: dict[str, Any], said: str) -> None:
    """The error says what to write."""
    with pytest.raises(ConfigError, match=said):
        parse_topic("orders", options, "")


def test_namespaces_stand_before_topics_and_groups() -> None:
    """As RocketMQ's own clients write them."""
    assert parse_topic("orders", {}, "shop").name == "shop%orders"
    assert group_of(Subscription("c", "orders", "loyalty"), "shop") == "shop%loyalty"
    with pytest.raises(ConfigError, match="no group called"):
        group_of(Subscription("c", "orders", "loyal ty"), "")


@pytest.mark.parametrize(
    ("delay", "timer", "properties"),
    [
        (0.0, True, {}),
        (0.0504, True, {"TIMER_DELAY_MS": "50"}),
        (0.5, False, {"DELAY": "1"}),
        (1.001, False, {"DELAY": "2"}),
        (7200, False, {"DELAY": "18"}),
    ],
)
def test_delays(delay: float, timer: bool, properties: dict[str, str]) -> None:
    """Exact with a timer wheel, else the next longer level, never both: the level would win."""
    assert delay_properties(timedelta(seconds=delay), timer=timer) == properties


@pytest.mark.parametrize(("days", "timer"), [(3.1, True), (0.1, False)])
def test_delays_that_are_too_long_are_refused(days: float, timer: bool) -> None:
    """They would be cut short."""
    with pytest.raises(RocketMQRefused, match="at most"):
        delay_properties(timedelta(days=days), timer=timer)


def test_an_order_to_move_is_read_although_it_is_no_json() -> None:
    """Java writes objects as keys."""
    body = b'{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"t"}:7,{"brokerName":"b"}:8,{"x":}:9}}'
    assert list(moves(body)) == [(("t", "a", 1), 7)]


def test_declare_is_answered_with_create() -> None:
    """An option of RabbitMQ says what does the same here."""
    _, (problem,) = read_topic("paid", {"declare": "missing"}, "")
    assert problem.text == "there is no RocketMQ topic option 'declare'"
    assert "write create: true at the topic" in problem.advice


def test_missing_packages_for_packed_bodies_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a Java producer's first packed message: with the command that installs them."""
    facts = facts_of("orders", "points")
    assert list(check_consumer(facts, "")) == []
    monkeypatch.setattr(checks, "missing_packages", lambda: ["lz4", "zstandard"])
    (problem,) = check_consumer(facts, "")
    assert problem.severity is Severity.WARNING
    assert problem.text.startswith("lz4 and zstandard not installed")
    assert "pip install 'oncemq[rocketmq]'" in problem.advice


def test_a_route_whose_tag_is_not_subscribed_to_is_warned_of() -> None:
    """Its handler would never run, and nothing would say why."""
    facts = facts_of(
        "orders",
        "points",
        options={"tags": "paid || shipped"},
        routes_by="headers.tags",
        routes=("paid", "payd", "x"),
    )
    problems = [problem for problem in check_consumer(facts, "") if problem.where == "routes"]
    assert [problem.text for problem in problems] == [
        "the route 'payd' never matches: the topic's tags are 'paid', 'shipped'",
        "the route 'x' never matches: the topic's tags are 'paid', 'shipped'",
    ]
    assert problems[0].advice == "did you mean 'paid'? Or add 'payd' to tags"
    assert problems[1].advice == "add 'x' to tags, or leave the route out"
    assert {problem.severity for problem in problems} == {Severity.WARNING}


@pytest.mark.parametrize(
    "changed",
    [
        {"options": {}},
        {"options": {"tags": "*"}},
        {"options": {"filter": "amount > 5"}},
        {"routes_by": "body.type"},
        {"routes": ("paid",)},
    ],
)
def test_routes_that_can_match_are_not_warned_of(changed: dict[str, Any]) -> None:
    """All tags arrive, or the routes are not chosen by them, or each has its tag."""
    usual = {"options": {"tags": ["paid"]}, "routes_by": "headers.tags", "routes": ("paid", "x")}
    facts = facts_of("orders", "points", **{**usual, **changed})
    assert [problem for problem in check_consumer(facts, "") if problem.where == "routes"] == []
