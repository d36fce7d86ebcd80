"""Accepted versions of payloads: older ones are brought to the newest by the user's functions, others are refused in words."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq import App, Batch, Envelope, FinalFailure, Reject
from oncemq.ledger.database.engine import make_engine
from oncemq.testing import TestApp
from support.declared import BASE, HANDLERS, loaded, problems

ACCEPTS = {"version": "headers.v", "versions": [1, 2, 3]}


class Paid(BaseModel):
    """The newest version."""

    id: str
    cents: int
    currency: str


def to_2(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had whole units."""
    body["cents"] = body.pop("amount") * 100
    return body


def to_3(body: dict[str, Any]) -> dict[str, Any]:
    """Version 2 knew one currency."""
    return {**body, "currency": "EUR"}


STEPS = {1: to_2, 2: to_3}


def shop(got: list[Any], *, batch: bool = False, body_format: str = "json", **accepts: Any) -> App:
    """Return an app that notes what its handler gets."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    strategy = {"unique_key": {"fingerprint": ["body.amount"]}}
    app.topic("orders", key="body.id", identity="message_id", format=body_format, strategies=[strategy])
    options = {**ACCEPTS, "upcasters": STEPS, **accepts}

    def one(order: Paid, envelope: Envelope) -> None:
        got.append((order, envelope.key))

    def many(orders: Batch[Paid]) -> None:
        got.extend(orders)

    app.consumer(topic="orders", name="pay", accepts=options)(many if batch else one)  # type: ignore[typeddict-item]
    return app


def publish(app: TestApp, version: Any, **body: Any) -> Any:
    """Publish a body of this version."""
    return app.publish("orders", {"id": "1", **body}, headers={} if version is None else {"v": str(version)})


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, {"amount": 3}),
        ("v1", {"amount": 3}),
        (2, {"cents": 300}),
        (3, {"cents": 300, "currency": "EUR"}),
    ],
)
def test_each_accepted_version_reaches_the_handler_as_the_newest(version: Any, body: dict[str, Any]) -> None:
    """By as many functions as there are versions between."""
    got: list[Any] = []
    with TestApp(shop(got)) as app:
        assert publish(app, version, **body).applied
    assert got == [(Paid(id="1", cents=300, currency="EUR"), "1")]


def test_strategies_see_the_body_as_it_came() -> None:
    """A copy of an old message is a duplicate, though the function changes the body that it gets."""
    got: list[Any] = []
    with TestApp(shop(got)) as app:
        outcome = publish(app, 1, amount=3)
        assert outcome.applied
        assert app.duplicate(outcome).duplicate
    assert len(got) == 1


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (4, "version 4 is not accepted; accepted are 1, 2, 3"),
        (0, "version 0 is not accepted"),
        (None, "it has no headers.v, which says its version; accepted are 1, 2, 3"),
        ("new", "headers.v 'new' is no version; accepted are 1, 2, 3"),
        ("9" * 5000, "is no version"),
        ("²", "headers.v '²' is no version"),
    ],
)
def test_another_version_is_a_dead_letter(version: Any, why: str) -> None:
    """With the reason, and once: no further try would help."""
    got: list[Any] = []
    with TestApp(shop(got)) as app:
        outcome = publish(app, version, cents=1)
        assert (outcome.code, outcome.attempt) == ("schema", 1)
        assert "message '1' of topic 'orders': " in str(outcome.error)
        assert why in str(outcome.error)
    assert got == []


def test_messages_without_a_version_may_have_one() -> None:
    """As those that were sent before versions were thought of."""
    got: list[Any] = []
    with TestApp(shop(got, without=1)) as app:
        assert publish(app, None, amount=1).applied
    assert got[0][0].cents == 100


def test_a_function_that_fails_makes_a_dead_letter() -> None:
    """It names both versions and the error; the message behind it is applied."""
    got: list[Any] = []
    with TestApp(shop(got)) as app:
        outcome = publish(app, 1, total=3)
        assert outcome.code == "schema"
        assert "its body of version 1 cannot be brought to version 2: KeyError: 'amount'" in str(
            outcome.error
        )
        assert publish(app, 1, amount=2).applied
    assert len(got) == 1


def test_a_function_that_returns_nothing_is_found_out() -> None:
    """It may have changed the body in place and forgotten to return it."""
    with TestApp(shop([], upcasters={1: lambda body: body.clear(), 2: to_3})) as app:
        assert "the function from version 1 to 2 returned nothing" in str(publish(app, 1, amount=2).error)


def test_a_batch_has_messages_of_several_versions() -> None:
    """Each is brought to the newest; one that is refused leaves the others."""
    got: list[Any] = []
    with TestApp(shop(got, batch=True, version="body.v")) as app:
        bodies = [{"id": "1", "v": 1, "amount": 3}, {"id": "2", "v": 9}, {"id": "3", "v": 2, "cents": 7}]
        outcomes = app.publish_many("orders", bodies)
        assert [outcome.code for outcome in outcomes] == ["", "schema", ""]
    assert [order.cents for order in got] == [300, 7]


def test_a_message_that_has_finally_failed_is_told_in_the_newest_version() -> None:
    """The function of `on_dead` takes the type that the handler takes."""
    undone: list[Any] = []

    def undo(order: Paid) -> None:
        undone.append(order.cents)

    def fails(order: Paid) -> None:
        raise Reject("no")

    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    options = {**ACCEPTS, "upcasters": STEPS}
    app.consumer(topic="orders", name="pay", accepts=options, on_dead=undo)(fails)  # type: ignore[typeddict-item]
    with TestApp(app) as test:
        assert publish(test, 1, amount=3).code == "rejected"
    assert undone == [300]


def test_a_function_for_dead_letters_needs_no_payload() -> None:
    """It runs for a message of a version that is refused, too, whose body it could not get."""
    got: list[Any] = []
    app = shop([])
    app.topic("mails", key="body.id", identity="message_id", strategies=["unique_key"])
    options: Any = {**ACCEPTS, "upcasters": STEPS}

    def note(envelope: Envelope, failure: FinalFailure) -> None:
        got.append((envelope.key, failure.code))

    app.consumer(topic="mails", name="mail", accepts=options, on_dead=note)(lambda mail: None)
    with TestApp(app) as bench:
        assert bench.publish("mails", {"id": "1"}, headers={"v": "9"}).code == "schema"
    assert got == [("1", "schema")]


def test_behind_a_registrys_header_the_version_is_still_the_messages_own() -> None:
    """The schema's id in the header is no version: it is passed over with the header."""
    got: list[Any] = []
    with TestApp(shop(got, body_format="confluent-json")) as app:
        wire = b"\0\0\0\0\x02"
        assert app.publish("orders", wire + b'{"id": "1", "amount": 3}', headers={"v": "1"}).applied
        assert app.publish("orders", wire + b'{"id": "1", "cents": 3}').code == "schema"
    assert [order.cents for order, _ in got] == [300]


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": "1", "v": ' + b"[" * 90 + b"]" * 90 + b"}",
        b'{"id": "1", "v": "' + b"9" * 3_000_000 + b'"}',
        b'{"id": "1", "v": ' + b"9" * 900 + b"}",
        b'{"id": "1", "v": 1.0}',
        b'{"id": "1", "v": true}',
        b'{"id": "1", "v": {"v": 1}}',
        b'{"id": "1", "v": 1, "amount": {}}',
        b'{"id": "1", "v": 1, "amount": null}',
    ],
)
def test_whatever_a_body_names_as_its_version_makes_one_short_dead_letter(body: bytes) -> None:
    """With its original bytes; the next message is applied."""
    got: list[Any] = []
    with TestApp(shop(got, version="body.v")) as app:
        outcome = app.publish("orders", body)
        assert (outcome.code, outcome.attempt) == ("schema", 1)
        assert len(str(outcome.error)) < 400
        assert [letter.body for letter in app.dead_letters("pay")] == [body]
        assert app.publish("orders", {"id": "1", "v": 2, "cents": 3}).applied
    assert len(got) == 1


def test_on_a_broker_refused_messages_leave_their_neighbours(tmp_path: Path) -> None:
    """Applied once are those of accepted versions; the others are dead letters with their bytes."""
    enough, url = Event(), f"sqlite:///{tmp_path}/shop.db"
    app = App("shop", brokers={"main": f"embedded:///{tmp_path}/broker.db"}, database=url)
    app.topic("orders", key="body.id", strategies=["unique_key"])
    options: Any = {**ACCEPTS, "upcasters": STEPS}

    @app.consumer(topic="orders", name="pay", accepts=options)
    def pay(order: Paid, session: Session) -> None:
        session.execute(text("INSERT INTO paid VALUES (:id, :cents)"), {"id": order.id, "cents": order.cents})
        if order.id == "last":
            enough.set()

    app.create_tables()
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (id TEXT, cents INTEGER)"))
    sent = [
        ("1", {"id": "a", "amount": 3}),
        ("7", {"id": "b", "cents": 1}),
        ("1", {"id": "c", "total": 1}),
        ("2", {"id": "d", "cents": 4}),
        ("1", {"id": "a", "amount": 3}),
        ("3", {"id": "last", "cents": 5, "currency": "EUR"}),
    ]
    for version, body in sent:
        app.publish("orders", body, headers={"v": version})
    app.start()
    try:
        assert enough.wait(60)
    finally:
        assert app.stop() == 0
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id, cents FROM paid ORDER BY id")).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [("a", 300), ("d", 4), ("last", 5)]
    letters = sorted(app.dead_letters.list("pay"), key=lambda letter: str(letter.key))
    assert [(letter.key, letter.reason, letter.attempts) for letter in letters] == [
        ("b", "schema", 1),
        ("c", "schema", 1),
    ]
    assert [json.loads(letter.body) for letter in letters] == [sent[1][1], sent[2][1]]


def declared(accepts: str, schemas: str = "") -> str:
    """Return an app whose consumer accepts these versions."""
    return BASE.replace("topic: orders,", f"topic: orders, accepts: {{{accepts}}},") + schemas


def test_versions_and_functions_are_read_from_a_file(tmp_path: Path) -> None:
    """Versions as numbers, or as their files are called."""
    text = declared("version: body.v, versions: [v2, 1], upcasters: {1: MODULE:handle}")
    assert loaded(tmp_path, text).plan.consumers[0].handler.name.endswith(":handle")


MORE = """
from oncemq import Envelope
class Later:
    async def __call__(self, body): ...
later_object = Later()
def parts(body): yield body
def whole(envelope: Envelope) -> None: ...
"""
REGISTERED = "schemas: {versions: {orders: {1: {type: object}, 3: {type: object}}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (declared("versions: [1]"), "does not say where a message has its version"),
        (declared("version: body.v"), "names no versions"),
        (declared("version: order, versions: [1]"), "`version` cannot be used"),
        (declared("version: body.v, versions: [1, 3]"), "no function that makes version 2 of version 1"),
        (declared("version: body.v, versions: [1], upcasters: {1: MODULE:handle}"), "would never run"),
        (
            declared("version: body.v, versions: [1], without: 2"),
            "version 2 of messages that name none is not accepted",
        ),
        (declared("version: body.v, versions: [0]"), "`accepts`"),
        (declared("version: body.v, versions: [1], upcaster: {}"), "unknown name 'upcaster'"),
        (
            declared("version: body.v, versions: [1, 2], upcasters: {1: MODULE:hanlde}"),
            "'MODULE' has no 'hanlde' – did you mean 'handle'?",
        ),
        (declared("version: body.v, versions: [1, 2], upcasters: {1: MODULE:later}"), "is no function"),
        (
            declared("version: body.v, versions: [1, 2], upcasters: {1: MODULE:later_object}"),
            "is no function",
        ),
        (declared("version: body.v, versions: [1, 2], upcasters: {1: MODULE:parts}"), "is no function"),
        (
            declared("version: body.v, versions: [1]").replace("MODULE:handle", "MODULE:whole"),
            "it takes no payload, so `accepts` would refuse no version",
        ),
        (
            declared("version: body.v, versions: [2, 3], upcasters: {2: MODULE:handle}", REGISTERED),
            "version 2 of 'orders' is not registered – registered are 1, 3",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    """At its line, before anything starts."""
    (problem,) = problems(tmp_path, text, handlers=HANDLERS + MORE)
    assert problem.startswith("app.yaml:7:")
    assert said in problem
