"""Routes: the handler is chosen by a value in the message, and messages without a route are refused in words."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import App, ConfigError, Publisher
from oncemq.config import load
from oncemq.handler.routes import text_of
from oncemq.testing import TestApp
from support.declared import BASE, HANDLERS, declare, loaded, problems


class Base(DeclarativeBase):
    """Of the tables below."""


class Line(Base):
    """What a handler has written."""

    __tablename__ = "lines"

    id: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]


class Paid(BaseModel):
    """An order was paid."""

    id: str
    amount: int


class Shop:
    """An app whose handlers note what they get."""

    def __init__(self, by: str = "body.type", **options: Any) -> None:
        self.got: list[tuple[str, Any]] = []
        self.app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
        self.app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
        self.routes = self.app.routes(topic="orders", name="events", by=by, **options)
        self.routes.route("paid")(self.paid)
        self.routes.route("cancelled")(self.cancelled)

    def paid(self, order: Paid, session: Session) -> None:
        """Note it."""
        assert session.get_bind() is not None
        self.got.append(("paid", order))

    def cancelled(self, order: dict[str, Any]) -> None:
        """Note it."""
        self.got.append(("cancelled", order["id"]))


def test_each_kind_of_event_has_its_handler_with_arguments_of_its_own() -> None:
    """A payload type, a session, or neither."""
    shop = Shop()
    with TestApp(shop.app) as app:
        assert app.publish("orders", {"id": "1", "amount": 3, "type": "paid"}).applied
        assert app.publish("orders", {"id": "1", "type": "cancelled"}).applied
    assert shop.got == [("paid", Paid(id="1", amount=3)), ("cancelled", "1")]


def test_the_value_may_be_a_header() -> None:
    """As event types often are."""
    shop = Shop("headers.event_type")
    with TestApp(shop.app) as app:
        assert app.publish("orders", {"id": "1"}, headers={"event_type": "cancelled"}).applied
    assert shop.got == [("cancelled", "1")]


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), (7.5, "7.5"), (True, "true"), (None, ""), ([1], ""), ({}, ""), ("x", "x"), ("", "")],
)
def test_values_are_compared_as_they_are_written(value: Any, text: str) -> None:
    """A number as digits, and what has no text as nothing."""
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("payd", "no route for body.type 'payd' – did you mean 'paid'?"),
        ("shipped", "no route for body.type 'shipped' – known are 'paid', 'cancelled'"),
        (None, "it has no body.type, by which its handler is chosen; known are 'paid', 'cancelled'"),
        ("x" * 1000, f"no route for body.type '{'x' * 60}' – known are 'paid', 'cancelled'"),
    ],
)
def test_a_message_without_a_route_is_a_dead_letter(kind: Any, why: str) -> None:
    """It says topic, key, value and what is known; no handler has run, and the next message does."""
    shop = Shop()
    with TestApp(shop.app) as app:
        outcome = app.publish("orders", {"id": "1", "type": kind})
        assert outcome.dead_letter
        assert outcome.code == "no-route"
        assert str(outcome.error) == f"message '1' of topic 'orders': {why}"
        assert app.publish("orders", {"id": "1", "type": "cancelled"}).applied
    assert shop.got == [("cancelled", "1")]


def test_ignored_messages_are_applied_without_a_handler() -> None:
    """They keep their place in the strategies: a copy of one is a duplicate."""
    shop = Shop(otherwise="ignore")
    with TestApp(shop.app) as app:
        outcome = app.publish("orders", {"id": "1", "type": "shipped"})
        assert outcome.applied
        assert app.duplicate(outcome).duplicate
    assert shop.got == []


def test_all_others_may_have_a_handler() -> None:
    """Also those without a value."""
    got = []

    def other(order: dict[str, Any]) -> None:
        got.append(order["type"])

    shop = Shop(otherwise=other)
    with TestApp(shop.app) as app:
        for kind in ("shipped", None, "paid"):
            app.publish("orders", {"id": "1", "amount": 1, "type": kind})
    assert got == ["shipped", None]
    assert len(shop.got) == 1


def test_a_body_that_does_not_fit_its_route_is_refused_by_the_routes_name() -> None:
    """The types of several handlers may look alike."""
    with TestApp(Shop().app) as app:
        outcome = app.publish("orders", {"id": "1", "type": "paid"})
        assert outcome.code == "invalid"
        assert "route 'paid': the body is not a valid Paid: amount: Field required" in str(outcome.error)


@pytest.mark.parametrize("otherwise", ["reject", "ignore"])
def test_coroutine_functions_may_be_routes(otherwise: str) -> None:
    """All of them, then; what has no route is refused or ignored all the same."""
    got = []
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type", otherwise=otherwise)

    @routes.route("paid")
    async def paid(order: Paid) -> None:
        got.append(order.amount)

    with TestApp(app) as test:
        assert test.publish("orders", {"id": "1", "type": "paid", "amount": 2}).applied
        assert test.publish("orders", {"id": "1", "type": "paid"}).code == "invalid"
        assert test.publish("orders", {"id": "1", "type": "x"}).applied is (otherwise == "ignore")
    assert got == [2]


def test_a_route_may_publish() -> None:
    """The app then has an outbox."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    app.topic("receipts", key="body.id")
    routes = app.routes(topic="orders", name="events", by="body.type")

    @routes.route("paid")
    def paid(order: Paid, publisher: Publisher) -> None:
        publisher.publish("receipts", {"id": order.id})

    with TestApp(app) as test:
        test.publish("orders", {"id": "1", "type": "paid", "amount": 2})
        assert [message.body for message in test.published("receipts")] == [{"id": "1"}]


def test_a_value_has_one_handler() -> None:
    """A second one would never run."""
    shop = Shop()
    shop.routes.route("paid")(shop.cancelled)
    with pytest.raises(ConfigError, match=r"test_routes\.py:\d+: the value 'paid' has two handlers"):
        shop.app.plan()


def declared(routes: str, by: str = "by: body.type, ") -> str:
    """Return an app with these routes."""
    return BASE.replace('handler: "MODULE:handle"', f"routes: {{{by}{routes}}}")


def test_routes_are_read_from_a_file(tmp_path: Path) -> None:
    """Short, long, and below handlers."""
    text = declared("a: MODULE:handle, b: {handler: MODULE:handle}, handlers: {by: MODULE:handle}")
    (consumer,) = loaded(tmp_path, text).plan.consumers
    assert consumer.handler.name == "routes by body.type"
    assert len(consumer.handler.routes) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (declared("a: MODULE:handle", by=""), "`routes`: names no value that chooses the handler"),
        (declared(""), "`routes`: name no handler"),
        (declared("a: MODULE:hanlde"), "'MODULE' has no 'hanlde' – did you mean 'handle'?"),
        (declared("a: nothing"), "`routes`: the handler of 'a' 'nothing' does not name a Python object"),
        (declared("a: MODULE:handle, otherwise: drop"), "or reject, or ignore, or unsubscribed"),
        (declared("a: {handler: MODULE:handle, retry: 3}"), "`retry`: should be a mapping"),
        (declared("a: MODULE:handle, handlers: {a: MODULE:handle}"), "the value 'a' has two handlers"),
        (declared("a: MODULE:handle", by="by: order, "), "`by` cannot be used"),
        (declared("a: MODULE:handle, b: MODULE:later"), "only the latter is async def"),
        (
            declared("a: MODULE:handle").replace("routes:", "handler: MODULE:handle, routes:"),
            "`routes` and `handler` exclude each other",
        ),
        (BASE.replace(', handler: "MODULE:handle"', ""), "`handler` is missing"),
        (BASE.replace('"MODULE:handle"', " "), "`handler` is missing"),
        (BASE.replace('handler: "MODULE:handle"', "routes: "), "`handler` is missing"),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    """At its line, before anything starts."""
    (problem,) = problems(tmp_path, text)
    assert problem.startswith("app.yaml:7:")
    assert said in problem


def test_neighbours_on_other_routes_do_not_notice_a_failure() -> None:
    """One adds an object, one fails once after it wrote, one mixes objects and statements: each takes effect once."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    failed = list[str]()

    @routes.route("adds")
    def adds(order: dict[str, Any], session: Session) -> None:
        session.add(Line(id=order["id"], text="adds"))

    @routes.route("fails")
    def fails(order: dict[str, Any], session: Session) -> None:
        session.add(Line(id=order["id"], text="fails"))
        session.flush()
        if not failed:
            failed.append(order["id"])
            raise ValueError("once")

    @routes.route("mixes")
    def mixes(order: dict[str, Any], session: Session) -> None:
        session.add(Line(id=order["id"], text="mixes"))
        session.execute(update(Line).where(Line.id == order["id"]).values(text="mixed"))

    with TestApp(app, tables=Base.metadata) as test:
        kinds = ("adds", "fails", "mixes", "adds", "mixes")
        bodies = [{"id": str(number), "type": kind} for number, kind in enumerate(kinds)]
        outcomes = test.publish_many("orders", bodies)
        assert [outcome.applied for outcome in outcomes] == [True, False, True, True, True]
        test.clock.advance("10m")
        with test.session() as session:
            lines = session.scalars(select(Line).order_by(Line.id)).all()
            assert [line.text for line in lines] == ["adds", "fails", "mixed", "adds", "mixed"]


def test_a_batch_has_several_routes(tmp_path: Path) -> None:
    """So its handler cannot be one of them."""
    handlers = "from oncemq import Batch\ndef other(orders: Batch[dict]) -> None: ...\n"
    text = declared("a: MODULE:handle, b: MODULE:other")
    (problem,) = problems(tmp_path, text, handlers=HANDLERS + handlers)
    assert "MODULE:other: it takes a Batch, whose messages may have several routes" in problem


def test_the_key_must_be_a_field_of_each_routes_type(tmp_path: Path) -> None:
    """A type that forbids other fields, and has not the key, could never be handled."""
    handlers = (
        "from pydantic import BaseModel\nclass Strict(BaseModel, extra='forbid'):\n    ident: str\n"
        "def other(order: Strict) -> None: ...\n"
    )
    text = declared("a: MODULE:handle, b: MODULE:other")
    assert (
        "body.id names a field that Strict does not have"
        in problems(tmp_path, text, handlers=HANDLERS + handlers)[0]
    )


def test_a_route_by_a_tag_that_is_not_subscribed_to_is_warned_of_at_its_line(tmp_path: Path) -> None:
    """By a RocketMQ consumer, before it starts; a route below `handlers` counts, too."""
    text = declared("paid: MODULE:handle, handlers: {late: MODULE:handle}", by="by: headers.tags, ")
    text = text.replace("scripted://host", "rocketmq://host").replace(
        "[decide]", "[unique_key], tags: [paid]"
    )
    app = load(declare(tmp_path, text), environment={})
    (warning,) = [str(each) for each in app.warnings if "never matches" in str(each)]
    assert "app.yaml:7:" in warning
    assert "count: the route 'late' never matches: the topic's tags are 'paid'" in warning
