"""Each body is checked against the registered schema of the version that its message names, and refused in words."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.errors import UnacceptedSchema, Unpublishable
from oncemq.message.body_version import BodyVersion
from oncemq.message.envelope import Message
from oncemq.schemas.bodies import BodySchemas, UnusableSchema
from oncemq.schemas.registry import Registered
from oncemq.testing import TestApp
from support.declared import BASE, loaded, problems

V1 = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["amount"],
}
V2 = {
    "type": "object",
    "properties": {
        "cents": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
    },
    "required": ["cents"],
}
IDS = {1: 17, 2: [18, "6f1c2a30-98b4-4d0c-8b6e-02c4f0d9a111"]}


def to_2(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had whole units."""
    return {**body, "cents": body["amount"] * 100}


def shop(got: list[Any], body_format: str = "json", accepts: Any = None, **topic: Any) -> App:
    """Return an app that notes what its handler gets."""
    versions: Any = {"orders": {1: V1, 2: V2}}
    app = App(
        "shop",
        brokers={"main": "embedded://"},
        database="sqlite:///unused.db",
        schemas={"versions": versions},
    )
    strategies = [{"unique_key": {"fingerprint": ["body.amount"]}}]
    app.topic(
        "orders", key="body.id", identity="message_id", format=body_format, strategies=strategies, **topic
    )

    def pay(order: dict[str, Any]) -> None:
        got.append(order)

    app.consumer(topic="orders", name="pay", **({} if accepts is None else {"accepts": accepts}))(pay)
    return app


ACCEPTS_BY_TOPIC: dict[str, Any] = {"versions": [1, 2], "upcasters": {1: to_2}}
ACCEPTS = {"version": "headers.v", "versions": [1, 2], "upcasters": {1: to_2}}


def publish(app: TestApp, version: Any, **body: Any) -> Any:
    """Publish a body of this version."""
    return app.publish("orders", {"id": "7", **body}, headers={} if version is None else {"v": str(version)})


def test_an_older_body_is_checked_against_its_own_version() -> None:
    """Before a function of the user's brings it to the newest: the function would take what its version forbids."""
    got: list[Any] = []
    with TestApp(shop(got, accepts=ACCEPTS)) as app:
        assert publish(app, 1, amount=3).applied
        outcome = publish(app, 1, amount="geheim")
        assert (outcome.code, outcome.attempt) == ("schema", 1)
        said = str(outcome.error)
        assert "message '7' of topic 'orders': its body of version 1 is not what v1 allows (" in said
        assert said.endswith('amount: the value is not of type "integer"')
    assert [order["cents"] for order in got] == [300]


def test_the_newest_body_is_checked_as_well() -> None:
    """With the path of each difference, and never the body's values."""
    got: list[Any] = []
    with TestApp(shop(got, accepts=ACCEPTS)) as app:
        said = str(publish(app, 2, cents="4111", lines=[{"sku": "a"}, {}]).error)
        assert 'cents: the value is not of type "integer"' in said
        assert 'lines[1]: "sku" is a required property' in said
        assert "4111" not in said
    assert got == []


def test_a_topic_says_where_the_version_is() -> None:
    """Its consumers need no `accepts`; a version that is not registered is refused, and so is a body of another."""
    got: list[Any] = []
    with TestApp(shop(got, body_version="headers.v")) as app:
        for version, body, said in (
            (3, {"cents": 1}, "version 3 is not registered; registered are 1, 2"),
            ("x", {"cents": 1}, "headers.v 'x' is no version; registered are 1, 2"),
            (None, {"cents": 1}, "it has no headers.v, which says its version; registered are 1, 2"),
            (2, {"amount": 1}, '"cents" is a required property'),
        ):
            outcome = publish(app, version, **body)
            assert outcome.code == "schema"
            assert str(outcome.error).startswith("message '7' of topic 'orders': ")
            assert said in str(outcome.error)
        assert publish(app, "v1", amount=1).applied
        assert publish(app, 2, cents=1).applied
    assert len(got) == 2


def test_what_other_producers_send_is_a_dead_letter(tmp_path: Path) -> None:
    """It names key, version, path and what was expected; its bytes are kept, and the message behind it is applied."""
    sender = App("sender", brokers={"main": f"embedded:///{tmp_path}/broker.db"})
    sender.topic("orders", key="body.id")
    app = App(
        "shop",
        brokers={"main": f"embedded:///{tmp_path}/broker.db"},
        database=f"sqlite:///{tmp_path}/shop.db",
        schemas={"versions": {"orders": {1: V1, 2: V2}}},
    )
    got, done = list[Any](), Event()
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"], body_version=2)

    @app.consumer(topic="orders", name="pay")
    def pay(order: dict[str, Any], session: Session) -> None:
        del session
        got.append(order)
        done.set()

    app.create_tables()
    bodies = [{"id": "a", "cents": "1"}, {"id": "b", "cents": 2}]
    for body in bodies:
        sender.publish("orders", body)
    app.start()
    try:
        assert done.wait(60)
    finally:
        assert app.stop() == 0
    (letter,) = app.dead_letters.list("pay")
    assert (letter.reason, letter.attempts, letter.key) == ("schema", 1, "a")
    assert json.loads(letter.body) == bodies[0]
    assert "message 'a' of topic 'orders': its body of version 2 is not what v2 allows" in str(letter.error)
    assert got == [bodies[1]]


@pytest.mark.parametrize("key", ["body.id", None])
def test_an_app_does_not_publish_what_its_consumers_would_refuse(tmp_path: Path, key: str | None) -> None:
    """Its own bodies are checked before they are sent, also to a topic whose consumers say the key."""
    broker = {"main": f"embedded:///{tmp_path}/broker.db"}
    app = App("shop", brokers=broker, schemas={"versions": {"orders": {2: V2}}})
    app.topic("orders", body_version=2, **({} if key is None else {"key": key}))
    app.publish("orders", {"id": "7", "cents": 1}, key="7")
    with pytest.raises(Unpublishable, match="message '7' of topic 'orders': its body of version 2"):
        app.publish("orders", {"id": "7", "cents": "1"}, key="7")


def test_functions_follow_the_version_that_the_topic_says() -> None:
    """`accepts` needs no `version` then."""
    got: list[Any] = []
    with TestApp(
        shop(got, body_version={"version": "headers.v", "without": 1}, accepts=ACCEPTS_BY_TOPIC)
    ) as app:
        assert publish(app, None, amount=3).applied
        assert publish(app, 2, cents=5).applied
    assert [order["cents"] for order in got] == [300, 5]


@pytest.mark.parametrize(
    ("wire", "headers", "body", "said"),
    [
        (b"\0\0\0\0\x11", {}, {"amount": 3}, None),
        (b"\0\0\0\0\x12", {}, {"cents": 3}, None),
        (b"\0\0\0\0\x12", {}, {"amount": 3}, '"cents" is a required property'),
        (
            b"\0\0\0\0\x13",
            {},
            {"cents": 3},
            "the registry's id 19, which is no known version; registry_ids has 17, 18, 6f1c",
        ),
        (b"", {"__value_schema_id": "\0\0\0\0\x11"}, {"amount": 3}, None),
        (b"", {"__value_schema_id": "GUID"}, {"cents": 3}, None),
        (b"", {"__value_schema_id": "GUID"}, {"amount": 3}, '"cents" is a required property'),
        (b"", {"__value_schema_id": "?"}, {"amount": 3}, "it has no id of a registry's schema"),
    ],
)
def test_the_registrys_header_names_the_version(
    wire: bytes, headers: dict[str, str], body: dict[str, Any], said: str | None
) -> None:
    """In front of the body, or among the message's headers, as a number or a GUID."""
    raw = b"\x01" + bytes.fromhex("6f1c2a3098b44d0c8b6e02c4f0d9a111")
    headers = {
        name: raw.decode(errors="backslashreplace") if text == "GUID" else text
        for name, text in headers.items()
    }
    got: list[Any] = []
    app = shop(got, "confluent-json", ACCEPTS_BY_TOPIC, body_version={"registry_ids": IDS})
    with TestApp(app) as bench:
        sent = wire + json.dumps({"id": "7", **body}).encode()
        if said is None:
            assert bench.publish("orders", sent, headers=headers).applied
            assert got[0]["cents"] in (3, 300)
        else:
            outcome = bench.publish("orders", sent, headers=headers)
            assert outcome.code == "schema"
            assert said in str(outcome.error)


def test_a_hundred_thousand_differences_make_a_short_error() -> None:
    """Five are named; a body made for it costs little."""
    schemas = BodySchemas("orders", [Registered("orders", 1, {"items": {"type": "string"}}, "here")])
    with pytest.raises(UnacceptedSchema) as refused:
        schemas.check(1, list(range(100_000)), "7")
    said = str(refused.value)
    assert "[4]: the value is not of type" in said
    assert said.endswith("; and more")
    assert len(said) < 500


def test_names_that_a_body_makes_up_are_shown_on_one_line() -> None:
    """A field's name may be long, or hold control characters."""
    schemas = BodySchemas(
        "orders", [Registered("orders", 1, {"additionalProperties": {"type": "string"}}, "here")]
    )
    with pytest.raises(UnacceptedSchema) as refused:
        schemas.check(1, {"\x1b[31m" + "x" * 100_000: 1}, "7")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"format": "date-time"}, "2026-01-02T03:04:05"),
        ({"type": "integer"}, 10**400),
        ({"type": "integer"}, 1.0),
        ({"$ref": "#/$defs/id", "$defs": {"id": {"type": "string"}}}, "x"),
        ({"$id": "https://example.org/orders.v1.json", "$ref": "#/$defs/id", "$defs": {"id": {}}}, 1),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}, ["x", 1]),
        (True, {"any": "thing"}),
    ],
)
def test_what_a_version_allows_passes(schema: Any, body: Any) -> None:
    """Formats are no rule, numbers may be long, references stay within the schema, and its draft counts."""
    BodySchemas("orders", [Registered("orders", 1, schema, "here")]).check(1, body, "7")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"$ref": "https://example.org/other.json"},
            "$ref 'https://example.org/other.json' leads out of the schema",
        ),
        ({"$ref": "orders.v2.json"}, "leads out of the schema"),
        ({"pattern": "("}, 'is not a "regex"'),
        ({"required": "id"}, "v1 of 'orders' (here)"),
    ],
)
def test_a_schema_that_cannot_check_bodies_is_refused(schema: Any, said: str) -> None:
    """With version, place and reason; nothing is fetched from the network."""
    with pytest.raises(UnusableSchema) as refused:
        BodySchemas("orders", [Registered("orders", 1, schema, "here")])
    assert said in str(refused.value)


class _Asked(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with a schema that allows everything."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


def test_no_schema_is_fetched() -> None:
    """Not from an address that would answer, either: a check of bodies never depends on the network."""
    with HTTPServer(("127.0.0.1", 0), _Asked) as server:
        Thread(target=server.serve_forever).start()
        schema = {"$ref": f"http://127.0.0.1:{server.server_port}/other.json"}
        try:
            with pytest.raises(UnusableSchema):
                BodySchemas("orders", [Registered("orders", 1, schema, "here")])
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("value", "number"), [("2", 2), ("v2", 2), (2, 2), (True, None), (2.0, None), ("²", None), ([2], None)]
)
def test_versions_are_read_as_people_write_them(value: Any, number: int | None) -> None:
    """Whole numbers, also with a v."""
    version = BodyVersion("orders", "body.v")
    if number is not None:
        assert version.of(Message("orders", b""), {"v": value}, "7") == number
        return
    with pytest.raises(UnacceptedSchema):
        version.of(Message("orders", b""), {"v": value}, "7")


REGISTERED = "schemas: {versions: {orders: {1: {type: object}, 3: {type: object}}}}\n"


def declared(version: str, schemas: str = REGISTERED, consumer: str = "") -> str:
    """Return an app whose topic says where bodies have their version."""
    text = BASE.replace("key: body.id,", f"key: body.id, body_version: {version},")
    return text.replace("topic: orders,", f"topic: orders, {consumer}") + schemas


@pytest.mark.parametrize(
    "version",
    [
        "3",
        "v3",
        "headers.v",
        "{version: body.v, without: 1}",
        "{registry_ids: {1: 17}}, format: confluent-json",
    ],
)
def test_each_form_is_read_from_a_file(tmp_path: Path, version: str) -> None:
    """One number, an expression, or the registry's ids."""
    assert loaded(tmp_path, declared(version)).plan.consumers[0].name == "count"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (declared("2"), "version 2 of 'orders' is not registered – registered are 1, 3"),
        (declared("{version: body.v, without: 2}"), "version 2 of 'orders' is not registered"),
        (declared("1", ""), "no version of 'orders' is registered – add its schemas below schemas:"),
        (declared("order"), "cannot be used"),
        (declared("0"), "is out of range"),
        (declared("{}"), "by either `version` or `registry_ids`"),
        (declared("{version: body.v, registry_ids: {1: 17}}"), "by either `version` or `registry_ids`"),
        (declared("{version: body.v, with: 1}"), "unknown name 'with'"),
        (
            declared("{registry_ids: {1: 17}}"),
            "which format json does not have – write format: confluent-json",
        ),
        (declared("{registry_ids: []}"), "a mapping of versions to a registry's ids"),
        (declared("{registry_ids: {1: 17, 3: 17}}"), "the registry's id 17 stands there twice"),
        (declared("{registry_ids: {1: x}}"), "'x' is not the id of a registry's schema"),
        (declared("{registry_ids: {1: -1}}"), "'-1' is not the id of a registry's schema"),
        (declared("1, format: text"), "bodies of format text are no JSON"),
        (
            declared("body.v", consumer="accepts: {version: body.v, versions: [1]},"),
            "topic 'orders' says by body_version what version a body has – leave `version` and `without` out here",
        ),
        (
            declared("1", "schemas: {versions: {orders: {1: {$ref: other.json}}}}\n"),
            "leads out of the schema",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    """At its place, before anything starts."""
    found = problems(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith("app.yaml:")
    assert said in found[0]


def test_a_schema_beyond_use_matters_only_where_bodies_are_checked(tmp_path: Path) -> None:
    """An app that compares its versions alone loads."""
    text = BASE + "schemas: {versions: {orders: {1: {$ref: other.json}}}}\n"
    assert loaded(tmp_path, text).plan.consumers


def test_without_the_library_the_install_line_is_said() -> None:
    """At the option that needs it; an app that checks no bodies does not import it."""
    program = """
import sys
sys.modules["jsonschema_rs"] = None
from oncemq import App
from oncemq.errors import ConfigError
def app(**topic):
    app = App("shop", brokers={"main": "embedded://"}, schemas={"versions": {"orders": {1: {}}}})
    app.topic("orders", key="body.id", strategies=["none"], **topic)
    app.consumer(topic="orders", name="pay", effects="external")(lambda order: None)
    return app
app().check()
try:
    app(body_version=1).check()
except ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'needs a library: pip install "oncemq[schemas]"' in ran.stdout
