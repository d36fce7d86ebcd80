"""What has no place at its broker waits, is dropped, or is kept for a person, as its topic says."""

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publisher
from oncemq.engine.plan import AppPlan
from oncemq.errors import BrokerError, BrokerRefused, Unroutable
from oncemq.ledger.messages import outbox, outbox_refused
from oncemq.ledger.messages.outbox_refused import DEAD_LETTER, Chosen
from oncemq.message.outgoing import OutgoingTopic, WhenUnroutable
from oncemq.testing.scripted import ScriptedAdapter
from support.database.databases import database
from support.effects import effects, empty, give
from support.engine import make_app, make_consumer, make_topic, running
from support.heard import Heard

__all__ = ["database"]

NO_QUEUE = Unroutable("no queue takes it")


@pytest.fixture
def engine(database: Engine) -> Engine:
    """Each database, its outbox empty."""
    empty(database)
    with database.begin() as connection:
        connection.execute(delete(outbox.TABLE))
    return database


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """The broker of both topics."""
    return ScriptedAdapter()


def topic(unroutable: WhenUnroutable) -> OutgoingTopic:
    """Return the topic that handlers publish to."""
    made = make_topic("shipped")
    made.unroutable = unroutable
    return made


def ship(body: dict[str, Any], session: Session, publisher: Publisher) -> None:
    """Leave an effect and publish one message."""
    give(session, body)
    publisher.publish("shipped", body, message_id=body["id"])


def app(adapter: ScriptedAdapter, engine: Engine | None, unroutable: WhenUnroutable) -> AppPlan:
    """Return an app that publishes to a topic with this policy."""
    topics = {"shipped": topic(unroutable)}
    return make_app(adapter, engine, make_consumer(ship, topics=topics), topics=topics)


def order(number: int) -> bytes:
    """Return the body of an order, all of one key."""
    return json.dumps({"id": f"o{number}", "key": "k"}).encode()


def sent(adapter: ScriptedAdapter) -> list[str | None]:
    """Return the ids of what was published, in order."""
    return [sent.message.message_id for sent in adapter.published]


def rows(engine: Engine) -> list[dict[str, Any]]:
    """Return what brokers have refused."""
    with engine.connect() as connection:
        return outbox_refused.listed(connection, "shop", Chosen(), 10)


def test_what_waits_holds_back_its_key(adapter: ScriptedAdapter, engine: Engine) -> None:
    """By default nothing of the key overtakes a message that has no place yet."""
    heard = Heard()
    adapter.fail_next("publish", NO_QUEUE)
    with running(app(adapter, engine, WhenUnroutable.WAIT), observers=[heard]):
        adapter.deliver(order(1))
        adapter.deliver(order(2))
        heard.wait_for("outbox_refused")
        adapter.wait_until(lambda a: len(a.published) == 2, 20)
    assert sent(adapter) == ["o1", "o2"]
    assert heard.of("unroutable") == []


def test_what_may_be_dropped_is_dropped(adapter: ScriptedAdapter, engine: Engine) -> None:
    """It is told with its id, leaves no row, and what is behind it is sent."""
    heard = Heard()
    adapter.fail_next("publish", NO_QUEUE)
    with running(app(adapter, engine, WhenUnroutable.DROP), observers=[heard]):
        adapter.deliver(order(1))
        (told,) = heard.wait_for("unroutable")
        adapter.deliver(order(2))
        adapter.wait_until(lambda a: len(a.published) == 1)
    assert told.arguments == ("shipped", ["o1"])
    assert told.fields == {"dropped": True, "error": NO_QUEUE}
    assert sent(adapter) == ["o2"]
    assert rows(engine) == []
    assert effects(engine) == ["o1", "o2"]


def test_a_dead_letter_of_the_outbox_holds_back_nothing(adapter: ScriptedAdapter, engine: Engine) -> None:
    """It is kept with its error, is not counted as waiting, and what is behind it is sent, by others too."""
    heard = Heard()
    adapter.fail_next("publish", NO_QUEUE)
    plan = app(adapter, engine, WhenUnroutable.DEAD_LETTER)
    with running(plan, observers=[heard]):
        adapter.deliver(order(1))
        heard.wait_for("unroutable")
        adapter.deliver(order(2))
        adapter.wait_until(lambda a: len(a.published) == 1)
    with engine.begin() as connection:
        now = plan.clock.now()
        left_behind = outbox.Claim("shop", "gone", now)
        outbox.add(connection, left_behind, "shop.points", [("shipped", adapter.published[0].message)], now)
        taken = outbox.take_over(
            connection, outbox.Claim("shop", "other", now + timedelta(hours=1)), now, limit=10
        )
        depth = outbox.depth(connection, "shop")
    assert [delivery.message.message_id for delivery in taken] == ["o2"]
    assert (depth.messages, depth.refused, depth.dead) == (1, 0, 1)
    (row,) = rows(engine)
    assert (row["message_id"], row["state"], row["due_at"]) == ("o1", DEAD_LETTER, None)
    assert "no queue takes it" in row["error"]


def test_a_dead_letter_of_the_outbox_is_sent_again(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A retry makes it due, and any running worker of the app sends it."""
    adapter.fail_next("publish", NO_QUEUE)
    heard = Heard()
    with running(app(adapter, engine, WhenUnroutable.DEAD_LETTER), observers=[heard]):
        adapter.deliver(order(1))
        heard.wait_for("unroutable")
    plan = app(adapter, engine, WhenUnroutable.DEAD_LETTER)
    with engine.begin() as connection:
        now = plan.clock.now()
        rows = outbox_refused.locked(connection, "shop", Chosen(key="k"), now)
        assert outbox_refused.retry(connection, rows, now) == 1
    with running(plan):
        adapter.wait_until(lambda a: len(a.published) == 1, 20)
    assert sent(adapter) == ["o1"]


@pytest.mark.parametrize("unroutable", [WhenUnroutable.DROP, WhenUnroutable.DEAD_LETTER])
def test_another_refusal_waits(adapter: ScriptedAdapter, engine: Engine, unroutable: WhenUnroutable) -> None:
    """A message that is too large, or not permitted, is never given up by this."""
    heard = Heard()
    adapter.fail_next("publish", BrokerRefused("too large"))
    with running(app(adapter, engine, unroutable), observers=[heard]):
        adapter.deliver(order(1))
        heard.wait_for("outbox_refused")
        adapter.wait_until(lambda a: len(a.published) == 1, 20)
    assert heard.of("unroutable") == []


@pytest.mark.parametrize(
    ("unroutable", "settled"),
    [(WhenUnroutable.DROP, "acknowledged"), (WhenUnroutable.DEAD_LETTER, "retried")],
)
def test_a_direct_handler_may_have_it_dropped(
    adapter: ScriptedAdapter, unroutable: WhenUnroutable, settled: str
) -> None:
    """Without an outbox nothing can be kept, so there a dead letter is an attempt of the handler's own message."""

    def mail(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish("shipped", body, message_id=body["id"])

    heard = Heard()
    topics = {"shipped": topic(unroutable)}
    consumer = make_consumer(mail, topics=topics, effects=Effects.EXTERNAL)
    error: BrokerError = NO_QUEUE
    adapter.fail_next("publish", error)
    with running(make_app(adapter, None, consumer, topics=topics), observers=[heard]):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(getattr(a, settled)) == 1)
    assert adapter.published == []
    assert len(heard.of("unroutable")) == (1 if settled == "acknowledged" else 0)
