"""Routes with strategies, retry, key, version, identity and schema of their own."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from oncemq import App
from oncemq.testing import TestApp
from support.declared import BASE, loaded, problems

STATES = ["created", "paid", "cancelled"]


def shop(*, key: str = "body.id", **topic: Any) -> App:
    """Return an app with a topic of orders."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key=key, **topic)
    return app


class Handlers:
    """Functions that note what they got, and fail as often as they are told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.failing = 0

    def paid(self, order: dict[str, Any]) -> None:
        """Note it."""
        self._note("paid", order)

    def cancelled(self, order: dict[str, Any]) -> None:
        """Note it."""
        self._note("cancelled", order)

    def _note(self, route: str, order: dict[str, Any]) -> None:
        if self.failing:
            self.failing -= 1
            raise ValueError("not yet")
        self.got.append((route, order.get("n", order["id"])))


@pytest.fixture
def handlers() -> Handlers:
    """Return functions that note what they got."""
    return Handlers()


def test_a_route_has_its_own_number_of_attempts(handlers: Handlers) -> None:
    """The messages of other routes have the consumer's."""
    app = shop(identity="message_id", strategies=["unique_key"])
    routes = app.routes(
        topic="orders", name="events", by="body.type", retry={"attempts": 3, "backoff": {"first": "10ms"}}
    )
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", retry={"attempts": 1})(handlers.cancelled)
    with TestApp(app) as test:
        handlers.failing = 1
        assert test.publish("orders", {"id": "1", "type": "cancelled"}).dead_letter
        handlers.failing = 1
        outcome = test.publish("orders", {"id": "1", "type": "paid"})
        assert not outcome.dead_letter
        assert test.redeliver(outcome).applied
    assert handlers.got == [("paid", "1")]


def test_a_route_may_try_at_once_where_the_consumer_does_not(handlers: Handlers) -> None:
    """`immediate` of the route counts for its messages."""
    app = shop(identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type", retry={"attempts": 1})
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", retry={"immediate": 2})(handlers.cancelled)
    with TestApp(app) as test:
        handlers.failing = 2
        assert test.publish("orders", {"id": "1", "type": "cancelled"}).applied
        handlers.failing = 1
        assert test.publish("orders", {"id": "1", "type": "paid"}).dead_letter


def test_a_route_has_its_own_strategies(handlers: Handlers) -> None:
    """A copy is a duplicate where the route knows duplicates, and runs again where it says none."""
    app = shop(identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", strategies=["none"])(handlers.cancelled)
    with TestApp(app) as test:
        paid = test.publish("orders", {"id": "1", "type": "paid"})
        cancelled = test.publish("orders", {"id": "1", "type": "cancelled"})
        assert test.duplicate(paid).duplicate
        assert test.duplicate(cancelled).applied
    assert handlers.got == [("paid", "1"), ("cancelled", "1"), ("cancelled", "1")]


def test_an_order_spans_routes_with_strategies_of_their_own(handlers: Handlers) -> None:
    """A number of one route is awaited by the other's; nothing overtakes, and nothing waits for ever."""
    order = {"sequence": {"order": "body.n", "first": 1}}
    app = shop(identity=["key", "body.n"], strategies=[order])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", strategies=["unique_key", order])(handlers.cancelled)
    sent = [("cancelled", 2), ("paid", 3), ("paid", 1), ("cancelled", 5), ("paid", 4)]
    with TestApp(app) as test:
        for kind, number in sent:
            test.publish("orders", {"id": "1", "type": kind, "n": number})
    assert [number for _, number in handlers.got] == [1, 2, 3, 4, 5]


def test_messages_of_a_key_run_in_order_though_they_are_taken_together(handlers: Handlers) -> None:
    """Also where every other one has another chain."""
    app = shop(identity=["key", "body.n"], strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", strategies=[{"unique_key": {"result": True}}])(handlers.cancelled)
    with TestApp(app) as test:
        test.publish_many(
            "orders", [{"id": "1", "type": "cancelled" if n % 3 else "paid", "n": n} for n in range(20)]
        )
    assert [number for _, number in handlers.got] == list(range(20))


def test_states_may_be_named_by_each_route(handlers: Handlers) -> None:
    """`to` may differ; the states are the entity's, and a late message is stale whatever its route."""
    machine = {"states": STATES, "early": "run"}
    app = shop(identity="message_id", strategies=[{"state_machine": {"to": "body.state", **machine}}])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", strategies=[{"state_machine": {"to": "body.now", **machine}}])(
        handlers.cancelled
    )
    with TestApp(app) as test:
        assert test.publish("orders", {"id": "1", "type": "cancelled", "now": "cancelled"}).applied
        assert test.publish("orders", {"id": "1", "type": "paid", "state": "paid"}).stale
    assert handlers.got == [("cancelled", "1")]


def test_key_and_identity_may_differ_by_route(handlers: Handlers) -> None:
    """No message is taken for a copy of one with another route, though their identities look alike."""
    app = shop(identity="body.id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", key="body.order", identity="body.no")(handlers.cancelled)
    with TestApp(app) as test:
        paid = test.publish("orders", {"id": "7", "type": "paid"})
        cancelled = test.publish("orders", {"id": "8", "order": "7", "no": "7", "type": "cancelled"})
        assert (paid.applied, cancelled.applied) == (True, True)
        assert test.duplicate(cancelled).duplicate
        assert test.publish("orders", {"id": "9", "order": "7", "no": "7", "type": "cancelled"}).duplicate


class Cancelled(BaseModel):
    """A body with a reason."""

    reason: str


def test_a_schema_holds_for_the_messages_of_its_route(handlers: Handlers) -> None:
    """Others are not validated by it; what it refuses is found by its key among the dead letters."""
    app = shop(identity="message_id", strategies=["unique_key"])
    routes = app.routes(topic="orders", name="events", by="body.type")
    routes.route("paid")(handlers.paid)
    routes.route("cancelled", schema=Cancelled)(handlers.cancelled)
    with TestApp(app) as test:
        assert test.publish("orders", {"id": "1", "type": "paid"}).applied
        refused = test.publish("orders", {"id": "1", "type": "cancelled"})
        assert (refused.dead_letter, refused.code) == (True, "invalid")
        assert [letter.key for letter in test.dead_letters("events")] == ["1"]
        assert test.publish("orders", {"id": "1", "type": "cancelled", "reason": "late"}).applied


def test_external_effects_have_chains_by_route_too() -> None:
    """Each message runs through the strategies of its route."""
    handlers = Handlers()
    app = shop(identity="message_id", strategies=["none"])
    routes = app.routes(topic="orders", name="events", by="body.type", effects="external")

    @routes.route("paid")
    async def paid(order: dict[str, Any]) -> None:
        handlers.paid(order)

    @routes.route("cancelled", strategies=["two_phase"])
    async def cancelled(order: dict[str, Any]) -> None:
        handlers.cancelled(order)

    with TestApp(app) as test:
        sent = test.publish("orders", {"id": "1", "type": "cancelled"})
        assert test.duplicate(sent).duplicate
        again = test.publish("orders", {"id": "1", "type": "paid"})
        assert test.duplicate(again).applied
    assert handlers.got == [("cancelled", "1"), ("paid", "1"), ("paid", "1")]


def declared(route: str, chain: str = "[decide]") -> str:
    """Return an app whose second route says more than its handler, in its own lines."""
    head = BASE.replace('handler: "MODULE:handle"}', "routes:").replace("[decide]", chain)
    head = head.replace("count: {topic: orders, routes:", "count:\n    topic: orders\n    routes:")
    return f"{head.rstrip()}\n      by: body.type\n      a: MODULE:handle\n      b:\n{route}"


@pytest.mark.parametrize(
    ("route", "chain", "line", "said"),
    [
        ("        strategies: [decide]\n", "[decide]", 12, "`handler` is missing"),
        ("        handler: MODULE:handle\n        limits: {}\n", "[decide]", 14, "unknown name 'limits'"),
        (
            "        handler: MODULE:handle\n        retry: 3\n",
            "[decide]",
            14,
            "`retry`: should be a mapping",
        ),
        ("        handler: MODULE:handle\n        strategies: []\n", "[decide]", 14, "is an empty list"),
        (
            "        handler: MODULE:handle\n        strategies: [guard]\n",
            "[decide]",
            14,
            "guard only guards",
        ),
        ("        handler: MODULE:handle\n        key: 'body['\n", "[decide]", 14, "key"),
        pytest.param(
            "        handler: MODULE:handle\n        strategies: [decide]\n",
            "[order]",
            14,
            "route 'b' leaves out order, by which the consumer orders the messages of a key",
            id="leaves out the order",
        ),
        (
            "        handler: MODULE:handle\n        strategies: [order]\n",
            "[decide]",
            14,
            "route 'b' orders the messages of a key by order, but the consumer does not",
        ),
        (
            "        handler: MODULE:handle\n        strategies: [{order: {first: 2}}, decide]\n",
            "[{order: {first: 1}}]",
            14,
            "route 'b' has order with another first than the consumer",
        ),
        (
            "        handler: MODULE:handle\n        retry: {attempts: 500, backoff: {first: 1h, max: 1h}}\n",
            "[decide]",
            None,
            "retries can take",
        ),
    ],
)
def test_what_routes_cannot_have_is_refused_at_its_line(
    tmp_path: Path, route: str, chain: str, line: int | None, said: str
) -> None:
    """It says the route, and what to write."""
    found = [problem for problem in problems(tmp_path, declared(route, chain)) if said in problem]
    assert len(found) == 1
    if line is not None:
        assert found[0].startswith(f"app.yaml:{line}:")


def test_a_strategy_that_stands_in_several_chains_is_one(tmp_path: Path) -> None:
    """Its locks, caches and background tasks are there once."""
    route = "        handler: MODULE:handle\n        strategies: [decide, guard]\n"
    plan = loaded(tmp_path, declared(route)).plan.consumers[0]
    assert [strategy.name for strategy in plan.strategies_on(0)] == ["decide", "guard"]
    assert plan.more_chains[0][0].strategies[0] is plan.strategies[0]
