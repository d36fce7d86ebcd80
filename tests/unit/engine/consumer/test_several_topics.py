"""A consumer of several topics: one identity space, one order of each key, and everything else goes back where it came from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.cli.reload.candidate import running
from oncemq.engine.group_ownership import own
from oncemq.errors import ConfigError, Reject
from oncemq.ledger import schema
from oncemq.ledger.messages import dead_letters, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.message.envelope import Message
from oncemq.operate import inspection, overview, pausing
from oncemq.operate.auditing import Operator
from oncemq.operate.brokers import chosen_consumers
from oncemq.testing import TestApp


class Effects:
    """Notes each order in its own transaction, and fails for keys that the test names."""

    def __init__(self) -> None:
        self.failing: dict[str, Exception] = {}
        self.seen: list[Any] = []

    def __call__(self, order: dict, session: Session) -> None:
        """Handle one order."""
        if order["id"] in self.failing:
            raise self.failing[order["id"]]
        self.seen.append(order.get("n", order.get("m", order["id"])))
        session.execute(text("SELECT 1"))


def two_brokers(folder: Path) -> App:
    """Return an app with a new and an old broker, both in files."""
    return App(
        "shop",
        brokers={name: f"embedded:///{folder}/{name}.db" for name in ("new", "old")},
        database=f"sqlite:///{folder}/shop.db",
        state=str(folder / "state"),
    )


def shop(folder: Path, effects: Effects, **options: Any) -> App:
    """Return an app whose consumer `count` reads orders from a new and an old broker."""
    app = two_brokers(folder)
    more = options.pop("legacy", {})
    app.topic("orders", broker="new", key="body.id", **options.pop("orders", {}))
    app.topic("orders.old", broker="old", **{"key": "body.id", **more})
    options.setdefault("topics", ["orders", "orders.old"])
    app.consumer(name="count", **{"strategies": ["unique_key"], "retry": {"attempts": 3}, **options})(effects)
    return app


@pytest.fixture
def effects() -> Effects:
    """What the handler has done."""
    return Effects()


@pytest.fixture
def started(tmp_path: Path, effects: Effects) -> Iterator[TestApp]:
    """The running app."""
    with TestApp(shop(tmp_path, effects)) as app:
        yield app


def test_an_order_that_arrives_by_both_topics_takes_effect_once(started: TestApp, effects: Effects) -> None:
    """The second one is a duplicate, from whichever broker it comes."""
    assert started.publish("orders", {"id": "A"}).applied
    assert started.publish("orders.old", {"id": "A"}).duplicate
    assert started.publish("orders.old", {"id": "B"}).applied
    assert started.publish("orders", {"id": "B"}).duplicate
    assert effects.seen == ["A", "B"]


def test_each_topic_has_its_own_key(tmp_path: Path, effects: Effects) -> None:
    """The legacy system calls the field otherwise, and it is the same order."""

    def handle(order: dict, session: Session) -> None:
        effects.seen.append(order)

    app = two_brokers(tmp_path)
    app.topic("orders", broker="new", key="body.id")
    app.topic("orders.old", broker="old", key="headers.order-no")
    app.consumer(topics=["orders", "orders.old"], name="count", strategies=["unique_key"])(handle)
    with TestApp(app) as shop_app:
        assert shop_app.publish("orders", {"id": "7"}).applied
        assert shop_app.publish("orders.old", {"no": 7}, headers={"order-no": "7"}).duplicate


def test_retries_and_dead_letters_stay_with_the_topic_they_came_from(
    started: TestApp, effects: Effects
) -> None:
    """A message of the old broker is retried there, and its dead letter is there."""
    effects.failing = {"A": RuntimeError("away"), "B": Reject("no such order")}
    retried = started.publish("orders.old", {"id": "A"})
    assert retried.retried
    started.clock.advance("1h")
    dead = started.publish("orders", {"id": "B"})
    assert dead.dead_letter
    found = {letter.key: letter.consumer for letter in started.dead_letters("count")}
    assert found == {"A": "count/orders.old", "B": "count/orders"}
    assert [letter.key for letter in started.dead_letters("count/orders")] == ["B"]
    effects.failing = {}
    assert started.replay(dead).applied
    assert effects.seen == ["B"]


def test_a_message_that_waits_for_one_of_the_other_topic_is_applied_after_it(
    tmp_path: Path, effects: Effects
) -> None:
    """Number 2 of the new topic waits for number 1 of the old one, which wakes it; then 3 of the old one."""
    app = shop(
        tmp_path,
        effects,
        strategies=["sequence"],
        orders={"version": "body.n"},
        legacy={"version": "body.m"},
    )
    with TestApp(app) as shop_app:
        assert shop_app.publish("orders", {"id": "A", "n": 2}).parked
        assert shop_app.publish("orders", {"id": "A", "n": 4}).parked
        assert shop_app.publish("orders.old", {"id": "A", "m": 1}).applied
        shop_app.clock.advance("10s")
        assert effects.seen == [1, 2]
        assert shop_app.publish("orders.old", {"id": "A", "m": 3}).applied
        shop_app.clock.advance("10s")
    assert effects.seen == [1, 2, 3, 4]


def test_a_key_that_is_retried_holds_back_the_other_topic(tmp_path: Path, effects: Effects) -> None:
    """With `on_retry: hold_key` a later message of the key waits, by whichever topic it came."""
    app = shop(
        tmp_path, effects, on_retry="hold_key", orders={"version": "body.n"}, legacy={"version": "body.m"}
    )
    effects.failing = {"A": RuntimeError("away")}
    with TestApp(app) as shop_app:
        shop_app.publish("orders.old", {"id": "A", "m": 1})
        assert shop_app.publish("orders", {"id": "A", "n": 2}).parked
        effects.failing = {}
        shop_app.clock.advance("1m")
    assert effects.seen == [1, 2]


def test_a_message_that_was_parked_is_tried_again_by_its_own_topic(tmp_path: Path, effects: Effects) -> None:
    """The first topic's workers look first, and would find no version in a message of the old one."""
    app = shop(
        tmp_path, effects, on_retry="hold_key", orders={"version": "body.n"}, legacy={"version": "body.m"}
    )
    effects.failing = {"A": RuntimeError("away")}
    with TestApp(app) as shop_app:
        waiting = shop_app.publish("orders.old", {"id": "A", "m": 1})
        effects.failing = {}
        shop_app.clock.advance("1m")
        assert waiting.applied
        assert shop_app.dead_letters() == []


def test_inspect_names_the_topic_of_what_is_known_by_topic(started: TestApp, effects: Effects) -> None:
    """Records are the consumer's; history and parked messages say by which topic their message came."""
    started.publish("orders", {"id": "A"})
    started.publish("orders.old", {"id": "A"})
    plan = started._running
    found, _ = inspection.of_key(plan, "A", plan.consumers)
    assert [row["consumer"] for row in found["processed"]] == ["count"]
    assert [(row["consumer"], row["outcome"]) for row in found["history"]] == [
        ("count/orders.old", "duplicate")
    ]


def test_what_waits_in_the_ledger_is_counted_once(tmp_path: Path, effects: Effects) -> None:
    """The parked message of one topic is not shown for the other."""
    app = shop(
        tmp_path,
        effects,
        strategies=["sequence"],
        orders={"version": "body.n"},
        legacy={"version": "body.m"},
    )
    with TestApp(app) as shop_app:
        shop_app.publish("orders.old", {"id": "A", "m": 2})
        plan = shop_app._running
        found = overview.empty(plan)
        overview.ask_ledger(plan, found)
        assert {row["consumer"]: row["parked"] for row in found.consumers} == {
            "count/orders": 0,
            "count/orders.old": 1,
        }
        found, _ = inspection.of_key(plan, "A", plan.consumers)
        assert [row["consumer"] for row in found["parked"]] == ["count/orders.old"]


def test_a_dead_letter_in_the_ledger_belongs_to_its_topic(started: TestApp) -> None:
    """What no broker takes is kept once, and listed for the topic it came from."""
    message = Message("orders.old", b'{"id": "A"}', message_id="1")
    with started.engine().begin() as connection:
        dead_letters.add(connection, "shop.count", message, {}, started.clock.now())
        assert dead_letters.count(connection, "shop.count", "orders") == 0
        assert dead_letters.count(connection, "shop.count", "orders.old") == 1
    assert [letter.consumer for letter in started.dead_letters()] == ["count/orders.old"]


def test_a_pause_is_the_consumers(started: TestApp) -> None:
    """A pause of `count` holds for all of its topics, and each says so."""
    plan = started._running
    pausing.pause(plan, chosen_consumers(plan, "count"), Operator("ada", "stock count"))
    assert set(pausing.in_force(plan)) == {"count/orders", "count/orders.old"}
    ended = pausing.resume(plan, chosen_consumers(plan, "count/orders"), Operator("ada", ""))
    assert ended == ["count/orders"]
    assert pausing.in_force(plan) == {}


def test_groups_are_named_after_the_topic_unless_written(tmp_path: Path, effects: Effects) -> None:
    """A broker that knows one subscription for each group is given one group for each topic."""
    (plan,) = [shop(tmp_path, effects).plan()]
    assert [each.subscription.group for each in plan.consumers] == [
        "shop-count-orders",
        "shop-count-orders-old",
    ]
    named = shop(tmp_path, effects, topics={"orders": "shop-count", "orders.old": None}).plan()
    assert [each.subscription.group for each in named.consumers] == ["shop-count", "shop-count-orders-old"]
    assert [each.scope for each in named.consumers] == ["shop.count", "shop.count"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": ["orders", "order"]}, "unknown topic 'order'"),
        ({"topics": []}, "names no topic"),
        ({"topics": "orders"}, "should be a list of topics"),
        ({"topics": ["orders", "orders"]}, "names 'orders' twice"),
        ({"topic": "orders"}, "`topics` and `topic` exclude each other"),
        ({"topics": None}, "`topic` is missing"),
        ({"mode": "broadcast"}, "mode: broadcast reads one topic"),
        ({"rate": "5/s"}, "this rate would hold for each of them"),
        ({"legacy": {"version": "body.n"}}, "has 1 part(s) in topic 'orders' and 2 in 'orders.old'"),
        (
            {
                "strategies": None,
                "orders": {"strategies": ["unique_key"]},
                "legacy": {"strategies": ["none"]},
            },
            "topics 'orders' and 'orders.old' have different strategies",
        ),
        (
            {"concurrency": {"by": "body.shop", "limit": 2}},
            "this limit would hold for each of them – leave concurrency: out",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused(
    tmp_path: Path, effects: Effects, options: dict[str, Any], said: str
) -> None:
    """Each refusal names the place in the file and what to write."""
    with pytest.raises(ConfigError) as refused:
        shop(tmp_path, effects, **options).plan()
    assert said in str(refused.value)
    assert f"{Path(__file__).name}:" in str(refused.value)


def test_rows_of_a_topic_that_went_are_not_forgotten(tmp_path: Path, effects: Effects) -> None:
    """Its parked messages stay where they are, and each start says so."""
    app = shop(
        tmp_path, effects, strategies=["sequence"], orders={"version": "body.n"}, legacy={"version": "body.m"}
    )
    plan = app.plan()
    schema.create(plan.engines[0], plan.tables())
    message = Message("orders.gone", b"{}", message_id="1")
    now = plan.clock.now()
    with plan.engines[0].begin() as connection:
        parking.add(connection, "shop.count", [Parked(0, "A", "A", 2, False, message, "early", now, None)])
    (said,) = [line for line in own(plan) if "orders.gone" in line]
    assert said.startswith("count: 1 parked message(s) of topic 'orders.gone' wait in the ledger")


def test_the_workers_of_each_topic_have_recorders_of_their_own(tmp_path: Path, effects: Effects) -> None:
    """Two workers that wrote into one file would hide what the other one ran when the process dies."""
    app = shop(tmp_path, effects)
    app.create_tables()
    app.start()
    try:
        recorders = [path.name for path in (tmp_path / "state").glob("shop.count@*")]
        assert len(recorders) == 2
    finally:
        assert app.stop() == 0


def test_topics_cannot_change_beside_running_processes(tmp_path: Path, effects: Effects) -> None:
    """Old processes would read the parked messages of a topic that they do not know."""
    before = running(shop(tmp_path, effects).load())
    after = running(shop(tmp_path, effects, topics=["orders"]).load())
    assert [line.split(" cannot")[0] for line in after.obstacles(before)] == ["consumers.count: topics"]
