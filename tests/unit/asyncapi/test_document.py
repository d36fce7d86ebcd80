"""The document is AsyncAPI 3.0 by its official JSON Schema, and says of brokers, topics and consumers what is configured."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

from jsonschema import Draft7Validator

from oncemq.asyncapi.brokers import description_of
from oncemq.asyncapi.document import Description
from oncemq.asyncapi.values import plain
from oncemq.common.redaction import Redactor
from oncemq.contracts.adapter import Adapter

SMALL = """
app: small
brokers: {local: {url: "embedded://memory"}}
topics:
  a b: {key: body.id, strategies: [none]}
  a/b: {key: body.id, strategies: [none]}
consumers: {}
"""

ROUTED = """
app: small
brokers: {local: {url: "embedded://memory"}}
database: {url: "sqlite://"}
topics: {orders: {key: body.id, identity: message_id, strategies: [unique_key]}}
consumers:
  events:
    topic: orders
    routes:
      by: body.type
      paid: "described_handlers:note"
      cancelled:
        handler: "described_handlers:note"
        strategies: [{unique_key: {fingerprint: [body.reason]}}]
        retry: {attempts: 1}
        key: body.order
        version: body.n
        identity: [body.order, body.n]
"""


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _references(child)


def _at(document: Any, reference: str) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        document = document[step]
    return document


def test_the_official_schema_accepts_the_document(
    document: dict[str, Any], official: Draft7Validator
) -> None:
    """Servers, channels, operations, messages, payloads and bindings of every broker are valid."""
    assert [error.message for error in official.iter_errors(document)] == []
    assert document["asyncapi"] == "3.0.0"
    assert document["info"] == {"title": "loyalty", "version": "1.4.0"}


def test_the_official_schema_refuses_another_document(
    document: dict[str, Any], official: Draft7Validator
) -> None:
    """The judge judges: a binding with a wrong version, and an unknown field, are errors."""
    document["channels"]["clicks"]["bindings"]["kafka"]["bindingVersion"] = "9"
    assert list(official.iter_errors(document))
    assert list(official.iter_errors({**document, "consumers": {}}))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """Channels, messages, servers and schemas that are named are there."""
    found = list(_references(document))
    assert len(found) > 30
    assert all(_at(document, reference) is not None for reference in found)


def test_no_user_and_no_password_is_shown(document: dict[str, Any]) -> None:
    """A server says that a login is needed, and never which."""
    text = json.dumps(document)
    assert [word for word in ("hunter", "bob", "alice", "carol") if word in text] == []
    assert document["servers"]["shop"]["security"] == [{"$ref": "#/components/securitySchemes/userPassword"}]
    assert document["servers"]["clicks"]["security"] == [{"$ref": "#/components/securitySchemes/scramSha256"}]


def test_a_broker_that_is_not_described_has_its_url_without_a_user() -> None:
    """Protocol, host and path are those of the URL; its topics have their own names."""
    described = description_of(cast(Adapter, object()), "odd://bob:***@host:1/place?x=1")
    server = described.server()
    assert (server.protocol, server.hosts, server.path) == ("odd", ["host:1"], "/place")
    assert described.topic("order.paid", {}).address == "order.paid"


def test_every_host_of_a_broker_is_a_server(document: dict[str, Any]) -> None:
    """A channel names all servers of its broker."""
    servers = document["servers"]
    assert (servers["shop"]["host"], servers["shop-2"]["host"]) == ("rabbit-1:5672", "rabbit-2:5673")
    assert (servers["shop"]["protocol"], servers["shop"]["pathname"]) == ("amqp", "/sales")
    assert (servers["rides"]["protocol"], servers["rides"]["x-oncemq-namespace"]) == ("rocketmq", "live")
    assert document["channels"]["clicks"]["servers"] == [
        {"$ref": "#/servers/clicks"},
        {"$ref": "#/servers/clicks-2"},
    ]


def test_a_partitioned_topic_on_rabbitmq_has_a_parameter(document: dict[str, Any]) -> None:
    """Its routing keys are one address with the number of the partition, its queues those of the group."""
    channel = document["channels"]["order.paid"]
    assert channel["address"] == "order.paid.2-{partition}"
    assert channel["parameters"] == {"partition": {"enum": ["0", "1"]}}
    exchange = {"name": "oncemq", "type": "topic", "durable": True, "vhost": "sales"}
    assert channel["bindings"]["amqp"] == {
        "is": "routingKey",
        "exchange": exchange,
        "bindingVersion": "0.3.0",
    }
    receiving = document["operations"]["award-points"]
    assert receiving["x-oncemq-queues"] == ["loyalty.order.paid.2-0", "loyalty.order.paid.2-1"]
    assert receiving["x-oncemq-dead-letters"] == "loyalty.order.paid.dead"
    assert receiving["x-oncemq-retries"] == "loyalty.order.paid.2-*.retry.*"


def test_an_existing_queue_and_another_exchange_are_described_as_they_are(document: dict[str, Any]) -> None:
    """What the app does not declare itself is said without its properties, which are not known."""
    legacy = document["channels"]["legacy"]["bindings"]["amqp"]
    assert legacy == {
        "is": "queue",
        "queue": {"name": "old-orders", "vhost": "sales"},
        "bindingVersion": "0.3.0",
    }
    fan = document["channels"]["fan"]["bindings"]["amqp"]["exchange"]
    assert fan == {"name": "everything", "type": "fanout", "vhost": "sales"}


def test_kafka_has_its_topic_partitions_key_and_group(document: dict[str, Any]) -> None:
    """The bindings that AsyncAPI defines for Kafka hold what is configured."""
    channel, receiving = document["channels"]["clicks"], document["operations"]["click"]
    assert channel["bindings"]["kafka"] == {"topic": "clicks", "bindingVersion": "0.5.0", "partitions": 12}
    assert receiving["bindings"]["kafka"]["groupId"] == {"type": "string", "enum": ["loyalty-click"]}
    assert document["components"]["messages"]["clicks"]["bindings"]["kafka"]["key"] == {"type": "string"}
    assert receiving["x-oncemq-dead-letters"] == "oncemq.loyalty-click.clicks.dead-letters"


def test_rocketmq_is_described_without_bindings(document: dict[str, Any]) -> None:
    """AsyncAPI defines none for it; topic, group and tags are extensions."""
    channel, receiving = document["channels"]["ride-events"], document["operations"]["track"]
    assert "bindings" not in channel
    assert channel["address"] == "live%ride-events"
    assert receiving["x-oncemq-rocketmq"] == {
        "group": "live%loyalty-track",
        "expression": "done || new",
        "type": "TAG",
    }
    assert receiving["x-oncemq-dead-letters"] == "%DLQ%live%loyalty-track"


def test_a_consumer_says_how_it_is_made_idempotent_and_retried(document: dict[str, Any]) -> None:
    """Strategies with their options, attempts and pauses, exceptions without a retry, and expiry are extensions."""
    award, track = document["operations"]["award-points"], document["operations"]["track"]
    assert (award["action"], award["summary"]) == ("receive", "Give a point for every ten paid.")
    assert (award["x-oncemq-group"], award["x-oncemq-effects"]) == ("loyalty", "database")
    assert award["x-oncemq-handler"] == "described_handlers:award"
    assert award["x-oncemq-retry"]["attempts"] == 3
    assert award["x-oncemq-retry"]["errors"] == {"builtins:ValueError": {"attempts": 1}}
    states = {"to": "body.status", "states": ["created", "done"]}
    assert track["x-oncemq-strategies"] == ["unique_key", {"state_machine": states}]
    assert document["operations"]["note"]["x-oncemq-expires"] == "10m"
    assert document["channels"]["ride-events"]["x-oncemq-version"] == "body.version"


def test_each_route_says_what_differs_for_its_messages(describe: Callable[[str], Description]) -> None:
    """Its handler always; strategies, retry, key, version and identity where they are not the consumer's."""
    document = describe(ROUTED).document
    assert document["operations"]["events"]["x-oncemq-routes"] == {
        "paid": {"handler": "described_handlers:note"},
        "cancelled": {
            "handler": "described_handlers:note",
            "strategies": [{"unique_key": {"fingerprint": ["body.reason"]}}],
            "retry": {"attempts": 1, "within": "0ms"},
            "key": "body.order",
            "version": "body.n",
            "identity": ["body.order", "body.n"],
        },
    }


def test_what_is_published_is_sent(document: dict[str, Any]) -> None:
    """A topic that a consumer declares, and one that no consumer reads, have an operation that sends."""
    sends = {name for name, entry in document["operations"].items() if entry["action"] == "send"}
    assert sends == {"award-points-to-order.shipped", "to-plain"}
    assert document["operations"]["award-points-to-order.shipped"]["x-oncemq-consumer"] == "award-points"
    assert document["components"]["messages"]["plain"]["contentType"] == "text/plain"


def test_names_that_no_reference_can_hold_stay_apart(describe: Callable[[str], Description]) -> None:
    """Two topics whose names become the same identifier are two channels with their own addresses."""
    document = describe(SMALL).document
    assert {name: channel["address"] for name, channel in document["channels"].items()} == {
        "a-b": "a b",
        "a-b-2": "a/b",
    }


def test_secrets_among_options_are_masked() -> None:
    """A value whose name says that it is secret, or that is a known secret, is not written; others are."""
    redact = Redactor(["hunter2secret"])
    options = {
        "token": "abc",
        "url": "redis://:pw@host",
        "note": "is hunter2secret",
        "lease": timedelta(minutes=5),
    }
    assert plain(options, redact) == {
        "token": "***",
        "url": "redis://:***@host",
        "note": "is ***",
        "lease": "5m",
    }
    assert plain([plain, None, 3, True], redact) == ["oncemq.asyncapi.values:plain", None, 3, True]
