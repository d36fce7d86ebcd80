"""Time-outs of states: published when an entity has been in a state for too long, and not after it has left it."""

from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import App, ConfigError, Reject
from oncemq.testing import TestApp

WAYS = {"placed": ["unpaid"], "unpaid": ["paid", "cancelled"], "paid": ["unpaid", "shipped"]}
TIMEOUTS = {"unpaid": {"after": "30m", "publish": "order.expired"}}


def shop(database: str = "sqlite:///unused.db", middlewares: Any = None, **options: Any) -> App:
    """Return an app that follows orders, and refuses those that say so."""
    app = App("shop", brokers={"main": "embedded://"}, database=database, middlewares=middlewares)
    machine = {"to": "body.to", "transitions": WAYS, "final": ["cancelled"], "timeouts": TIMEOUTS, **options}
    app.topic(
        "orders", key="body.id", identity="message_id", strategies=["unique_key", {"state_machine": machine}]
    )
    app.topic("order.expired", key="body.key")

    @app.consumer(topic="orders", name="orders")
    def follow(order: dict[str, Any], session: Session) -> None:
        assert session is not None
        if order.get("refused"):
            raise Reject("no")

    return app


def moved(app: TestApp, *states: str, id_: str = "A-1") -> list[Any]:
    """Bring an order through states; return the outcomes."""
    return [app.publish("orders", {"id": id_, "to": state}) for state in states]


def expired(app: TestApp) -> list[tuple[str, str]]:
    """Return key and state of the time-outs that were published."""
    return [(message.body["key"], message.body["state"]) for message in app.published("order.expired")]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ]
)
def database(request: pytest.FixtureRequest) -> str | None:
    """A database of each kind; None is the kit's own."""
    return None if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")


def test_an_entity_that_stays_is_told_after_its_time(database: str | None) -> None:
    """Once, and not before."""
    with TestApp(shop(), database=database) as app:
        moved(app, "placed", "unpaid")
        app.clock.advance("29m")
        assert expired(app) == []
        app.clock.advance("2m")
        assert expired(app) == [("A-1", "unpaid")]
        (message,) = app.published("order.expired")
        assert message.body["after"] == "30m"
        app.clock.advance("2h")
        assert len(expired(app)) == 1


def test_an_entity_that_leaves_in_time_is_not_told(database: str | None) -> None:
    """Its time-out is cancelled in the transaction that moves it; that of another entity stays."""
    with TestApp(shop(), database=database) as app:
        moved(app, "placed", "unpaid")
        moved(app, "placed", "unpaid", id_="A-2")
        app.clock.advance("29m")
        moved(app, "paid")
        app.clock.advance("2h")
        assert expired(app) == [("A-2", "unpaid")]


def test_messages_of_one_unit_count_in_their_order(database: str | None) -> None:
    """One enters the state and the next one leaves it, in one transaction; a third enters it again."""
    with TestApp(shop(), database=database) as app:
        states = {"A-1": ("placed", "unpaid", "paid"), "A-2": ("placed", "unpaid", "paid", "unpaid")}
        bodies = [{"id": id_, "to": state} for id_, ways in states.items() for state in ways]
        assert all(outcome.applied for outcome in app.publish_many("orders", bodies))
        app.clock.advance("1h")
        assert expired(app) == [("A-2", "unpaid")]


def test_a_state_that_is_entered_again_has_its_whole_time() -> None:
    """The first stay does not count."""
    with TestApp(shop()) as app:
        moved(app, "placed", "unpaid")
        app.clock.advance("20m")
        moved(app, "paid", "unpaid")
        app.clock.advance("29m")
        assert expired(app) == []
        app.clock.advance("2m")
        assert expired(app) == [("A-1", "unpaid")]


def test_copies_and_late_messages_begin_no_time() -> None:
    """Nor does one that is refused: nothing of it was committed."""
    with TestApp(shop()) as app:
        (placed, unpaid) = moved(app, "placed", "unpaid")
        app.clock.advance("20m")
        assert app.duplicate(unpaid).duplicate
        assert not app.duplicate(placed).applied
        refused = app.publish("orders", {"id": "A-1", "to": "paid", "refused": True})
        assert refused.dead_letter
        app.clock.advance("11m")
        assert expired(app) == [("A-1", "unpaid")]


class Refuses:
    """Refuses what is published for one entity."""

    def on_publish(self, publishing: Any) -> None:
        """Look at the body."""
        if publishing.topic == "order.expired" and publishing.body["key"] == "bad":
            raise ValueError("not this one")


def test_a_middleware_that_refuses_one_time_out_harms_no_other(database: str | None) -> None:
    """Its message is retried, and the other entities of the unit move on; a start does not ask the middleware."""
    with TestApp(shop(middlewares=[Refuses]), database=database) as app:
        for id_ in ("A-1", "bad", "A-2"):
            assert app.publish("orders", {"id": id_, "to": "placed"}).applied
        bodies = [{"id": id_, "to": "unpaid"} for id_ in ("A-1", "bad", "A-2")]
        first, bad, second = app.publish_many("orders", bodies)
        assert first.applied
        assert second.applied
        assert bad.retried
        assert bad.reason == "the time-out of state 'unpaid' cannot be published: ValueError: not this one"
        app.clock.advance("1h")
        assert sorted(expired(app)) == [("A-1", "unpaid"), ("A-2", "unpaid")]


@pytest.mark.parametrize("key", ["ключ", "a'b\"c", "x" * 200, "<script>", "a b", "%"])
def test_any_key_has_its_time_out(key: str) -> None:
    """It is cancelled by the same key."""
    with TestApp(shop()) as app:
        moved(app, "placed", "unpaid", id_=key)
        app.clock.advance("31m")
        assert expired(app) == [(key, "unpaid")]
        moved(app, "paid", "unpaid", "paid", id_=key)
        app.clock.advance("1h")
        assert len(expired(app)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"timeouts": {"unpayed": {"after": "1m", "publish": "order.expired"}}},
            "'unpayed' is none of the states",
        ),
        ({"timeouts": {"cancelled": {"after": "1m", "publish": "order.expired"}}}, "'cancelled' is final"),
        ({"timeouts": {"unpaid": {"after": "1m"}}}, "must have `after` and `publish`"),
        ({"timeouts": {"unpaid": {"after": "soon", "publish": "order.expired"}}}, "soon"),
        ({"timeouts": {"unpaid": {"after": "11000d", "publish": "order.expired"}}}, "cannot be published"),
        (
            {"timeouts": {"unpaid": {"after": "1m", "publish": "order.expird"}}},
            "unknown topic 'order.expird'",
        ),
        (
            {"timeouts": {"unpaid": {"after": "1m", "publish": "orders"}}},
            "declare the topic with `key: body.key`",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(options: dict[str, Any], said: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError) as caught:
        shop(**options).plan()
    assert said in str(caught.value)
