"""Batches: when they are full enough, which messages share one, and that nothing waits longer than it may or overtakes."""

import gzip
import json
import threading
import time
from collections import Counter
from datetime import timedelta
from itertools import chain
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import App, BadItems, Batch, ConfigError, NewMessage
from oncemq.engine.consumer.batch_fill import BatchFill
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.consumer.value_limit import ValueLimit
from oncemq.engine.rates.rate_limit import RateLimit
from oncemq.engine.rates.rule import BatchRule, ConcurrencyRule
from oncemq.message.envelope import Delivery, Message
from oncemq.testing import TestApp
from oncemq.testing.fake_clock import FakeClock

IN_FLIGHT = 1000
GROUPS = BatchFill(BatchRule(by="body.tenant"), IN_FLIGHT)
"""Reads groups as an intake does."""
LIMIT = ValueLimit(ConcurrencyRule("body.tenant", 2))


def delivery(name: str, *, generation: int = 1, expires_at: float | None = None) -> Delivery:
    """Return a delivery: its first letter is its key, what follows the second its tenant."""
    made = Delivery(Message("orders", name.encode()), name, generation, expires_at)
    made.key = name[0]
    body = {"tenant": name[2:]} if name[2:] else {}
    GROUPS.note(made, body)
    LIMIT.note(made, body)
    return made


class Bench:
    """A scheduler with a clock that the test moves.

    Args:
        within, by: of the rule.
        room: how many messages the consumer may hold.
        one_per_key: a take has one message of a key.
    """

    def __init__(
        self, within: float = 2.0, by: str = "", room: int = IN_FLIGHT, *, one_per_key: bool = False
    ) -> None:
        self.clock = FakeClock()
        self.scheduler = Scheduler(self.clock, one_per_key=one_per_key)
        self.scheduler.fill = BatchFill(BatchRule(within, by), room)

    def put(self, *names: str) -> None:
        """Let messages arrive."""
        self.scheduler.put([delivery(name) for name in names])

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(timedelta(seconds=seconds))

    def take(self, limit: int = 3) -> list[str]:
        """Return the names of the next batch, which is not done."""
        return [each.token for each in self.scheduler.take(limit, 0)]

    def run(self, limit: int = 3) -> list[str]:
        """Return the names of the next batch, which is done at once."""
        taken = self.scheduler.take(limit, 0)
        self.scheduler.done(taken)
        return [each.token for each in taken]


def test_a_batch_waits_until_it_is_full() -> None:
    """It has no more than its limit; what is above waits for the next one."""
    bench = Bench()
    bench.put("a1", "b1")
    assert bench.take() == []
    bench.put("c1", "d1")
    assert bench.take() == ["a1", "b1", "c1"]
    assert bench.take() == []


def test_a_message_waits_for_others_no_longer_than_it_may() -> None:
    """What came later goes with it."""
    bench = Bench()
    bench.put("a1")
    bench.pass_(1.5)
    bench.put("b1")
    assert bench.take() == []
    bench.pass_(0.5)
    assert bench.take() == ["a1", "b1"]


def test_what_waits_for_a_batch_belongs_to_no_worker() -> None:
    """So a drain, a lost connection or a queue that is given up finds it where all others wait."""
    bench = Bench()
    bench.put("a1", "b1")
    assert bench.take() == []
    assert not bench.scheduler.owned()
    assert [each.token for each in bench.scheduler.snapshot()] == ["a1", "b1"]
    assert [each.token for each in bench.scheduler.withdraw()] == ["a1", "b1"]


def test_a_taker_ends_its_wait_at_once_when_the_consumer_stops() -> None:
    """However long the messages might wait; they are returned."""
    scheduler = Bench(60.0).scheduler
    scheduler.put([delivery("a1")])
    taken: list[list[Delivery]] = []
    taker = threading.Thread(target=lambda: taken.append(scheduler.take(3, 60)))
    taker.start()
    assert [each.token for each in scheduler.close()] == ["a1"]
    taker.join(20)
    assert taken == [[]]


def test_a_message_that_came_back_does_not_wait_again() -> None:
    """Its time counts from when it arrived, not from its last try."""
    bench = Bench()
    bench.put("a1", "b1", "c1")
    taken = bench.scheduler.take(3, 0)
    bench.pass_(2.0)
    bench.scheduler.done(taken, taken[:1])
    assert bench.take() == ["a1"]


def test_what_was_taken_over_is_due_at_once() -> None:
    """A parked message whose turn has come did not arrive through the broker."""
    bench = Bench()
    bench.put("a1", "b1", "c1")
    taken = bench.scheduler.take(3, 0)
    bench.pass_(5.0)
    bench.scheduler.done(taken, [delivery("d1")])
    assert bench.take() == ["d1"]


def test_a_batch_has_messages_of_one_value() -> None:
    """The oldest group that is full or due is first; others wait for theirs."""
    bench = Bench(by="body.tenant")
    bench.put("a1x", "b1y", "c1x", "d1y", "e1x", "f1y", "g1z")
    assert bench.take() == ["a1x", "c1x", "e1x"]
    assert bench.take() == ["b1y", "d1y", "f1y"]
    assert bench.take() == []
    bench.pass_(2.0)
    assert bench.take() == ["g1z"]


def test_messages_without_the_value_are_a_group() -> None:
    """They mix with no other."""
    bench = Bench(0.0, by="body.tenant")
    bench.put("a1", "b1x", "c1")
    assert [bench.take(), bench.take()] == [["a1", "c1"], ["b1x"]]


@pytest.mark.parametrize("other", ["1", 1.5, True, None, [1], {"n": 1}], ids=repr)
def test_values_of_unlike_types_are_unlike(other: Any) -> None:
    """A handler that looks at the first message's value may rely on it."""
    fill, found = BatchFill(BatchRule(by="body.tenant"), IN_FLIGHT), set()
    for value in (1, other):
        made = Delivery(Message("orders", b""))
        fill.note(made, {"tenant": value})
        found.add(made.group)
    assert len(found) == 2


def test_nothing_of_a_key_overtakes_its_message_of_another_group() -> None:
    """Though its own group is full."""
    bench = Bench(by="body.tenant")
    bench.put("a1x", "a2y", "b1y", "c1y")
    assert bench.take() == []
    bench.put("d1y")
    assert bench.take() == ["b1y", "c1y", "d1y"]
    bench.pass_(2.0)
    assert bench.run() == ["a1x"]
    assert bench.run() == ["a2y"]


def test_one_group_that_floods_does_not_keep_others_waiting() -> None:
    """A message of another group is next when its time is over and it is older."""
    bench = Bench(by="body.tenant")
    bench.put("q1z", *(f"{key}1x" for key in "abcdef"))
    ran = []
    for _ in range(4):
        ran.append(bench.run())
        bench.put(*(f"{key}2x" for key in "ghi"))
        bench.pass_(1.0)
    assert ["q1z"] in ran


def test_a_full_prefetch_ends_the_wait() -> None:
    """Nothing more can arrive: the largest group runs at once."""
    bench = Bench(60.0, "body.tenant", room=4)
    bench.put("a1x", "b1y", "c1y")
    assert bench.take() == []
    bench.put("d1z")
    taken = bench.scheduler.take(3, 0)
    assert [each.token for each in taken] == ["b1y", "c1y"]
    assert bench.take() == ["a1x"], "those in work are still unsettled"
    bench.scheduler.done(taken)
    assert bench.take() == []


def test_one_message_of_a_key_at_a_time_is_no_reason_to_wait() -> None:
    """Where a strategy wants it so, the others follow at once."""
    bench = Bench(one_per_key=True)
    bench.put("a1", "a2", "a3")
    assert [bench.run(), bench.run(), bench.take()] == [["a1"], [], []]
    bench.pass_(2.0)
    assert [bench.run(), bench.run()] == [["a2"], ["a3"]]


def test_a_rate_gathers_a_batch() -> None:
    """Instead of one message whenever one may be taken; not more than it hands out at once."""
    bench = Bench()
    bench.scheduler.rate_limit = RateLimit(1.0, bench.clock, 2)
    bench.put("a1", "b1", "c1", "d1", "e1")
    assert bench.take() == ["a1", "b1"]
    bench.pass_(2.5)
    assert bench.take() == ["c1", "d1"]
    assert bench.take() == []
    bench.pass_(1.0)
    assert bench.take() == ["e1"]


def test_a_limit_by_value_bounds_a_batch() -> None:
    """What is above it waits with its key, and is due when there is room."""
    bench = Bench(by="body.tenant")
    bench.scheduler.values = ValueLimit(ConcurrencyRule("body.tenant", 2))
    bench.put("a1x", "b1x", "c1x", "d1x")
    taken = bench.scheduler.take(4, 0)
    assert [each.token for each in taken] == ["a1x", "b1x"]
    bench.pass_(2.0)
    assert bench.take() == []
    bench.scheduler.done(taken)
    assert bench.take(4) == ["c1x", "d1x"]


def test_lost_messages_do_not_fill_a_batch() -> None:
    """They are not handed out, and those that are left wait no longer than they may."""
    bench = Bench()
    bench.scheduler.put([delivery("a1"), delivery("b1", generation=2)])
    bench.scheduler.void(1)
    bench.pass_(2.0)
    assert bench.take() == ["b1"]


@pytest.mark.parametrize("seed", range(30))
def test_everything_runs_once_in_batches_of_one_value_and_in_the_order_of_its_key(seed: int) -> None:
    """With takers that end in any order, return some, let keys sleep, and with a limit by value for some."""
    draw = Random(seed)
    within = draw.choice([0.0, 1.0, 5.0])
    bench = Bench(within, "body.tenant", draw.choice([5, 1000]), one_per_key=draw.random() < 0.3)
    scheduler, clock = bench.scheduler, bench.clock
    if draw.random() < 0.5:
        scheduler.values = ValueLimit(ConcurrencyRule("body.tenant", 2))
    sent = [f"{draw.choice('abcd')}{n:02}"[:2] + draw.choice(["", "m", "n", "o"]) for n in range(60)]
    left = [delivery(name) for name in sent]
    order = {key: [each for each in left if each.key == key] for key in "abcd"}
    running: list[list[Delivery]] = []
    ran: list[Delivery] = []
    for _ in range(20_000):
        if len(ran) == len(sent):
            break
        if left and draw.random() < 0.4:
            scheduler.put([left.pop(0)])
        taken = scheduler.take(draw.randint(1, 6), 0)
        if taken:
            running.append(taken)
            assert len({each.group for each in taken}) == 1
        if running and (not taken or draw.random() < 0.5):
            unit = running.pop(draw.randrange(len(running)))
            keys = {each.key for each in unit if draw.random() < 0.2}
            back = [each for each in unit if each.key in keys]
            ran += [each for each in unit if each.key not in keys]
            scheduler.done(unit, back, {key: 1.0 for key in keys if draw.random() < 0.5})
        elif not running:
            clock.advance(timedelta(seconds=1))
    for key, expected in order.items():
        assert [each for each in ran if each.key == key] == expected


def app_of(strategy: Any = "unique_key") -> App:
    """Return an app with a topic, whose consumer is still missing."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="body.no", strategies=[strategy])
    return app


def consumer(app: App, batch: dict[str, Any], seen: list[list[Any]], kind: str, **options: Any) -> None:
    """Declare a consumer that notes its batches, by a function of a kind."""

    def note(orders: Batch[dict[str, Any]], session: Session) -> None:
        seen.append(list(orders))

    async def note_async(orders: Batch[dict[str, Any]], session: AsyncSession) -> None:
        seen.append(list(orders))

    function = note_async if kind == "async" else note
    app.consumer(topic="orders", name="note", batch=batch, **options)(function)


@pytest.mark.parametrize("kind", ["function", "async"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_consumer_waits_for_its_batches(kind: str, workers: int) -> None:
    """Real workers call the handler with full batches of one tenant, and then with what was left when its time was over."""
    seen: list[list[Any]] = []
    app = app_of()
    batch = {"limit": 10, "within": "300ms", "by": "body.tenant"}
    consumer(app, batch, seen, kind, workers=workers)
    bodies = [{"id": str(n % 4), "no": n, "tenant": n % 2} for n in range(44)]
    with TestApp(app, real=True) as test:
        outcomes = test.publish_many("orders", bodies)
    assert all(outcome.applied for outcome in outcomes)
    assert sorted(order["no"] for order in chain(*seen)) == list(range(44))
    assert all(len({order["tenant"] for order in each}) == 1 for each in seen)
    assert max(map(len, seen)) <= 10
    if workers == 1:
        assert sorted(map(len, seen)) == [2, 2, 10, 10, 10, 10]


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_the_test_kit_groups_and_waits_for_nothing(compressed: bool) -> None:
    """Also bodies that are decoded again when they run."""
    seen: list[list[Any]] = []
    app = app_of()
    consumer(app, {"within": "60s", "by": "body.tenant"}, seen, "function")
    bodies = [{"id": str(n), "no": n, "tenant": n % 3} for n in range(9)]
    began = time.monotonic()
    with TestApp(app) as test:
        packed = [
            NewMessage(gzip.compress(json.dumps(body).encode()), headers={"content-encoding": "gzip"})
            for body in bodies
        ]
        test.publish_many("orders", packed if compressed else bodies)
    assert time.monotonic() - began < 30
    assert sorted(sorted(order["no"] for order in each) for each in seen) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_copy_inside_of_a_batch_is_handed_over_once() -> None:
    """It is a duplicate of the message in front of it; one of the same identity with another body is none."""
    seen: list[list[Any]] = []
    app = app_of({"unique_key": {"fingerprint": "body"}})
    consumer(app, {"limit": 10, "within": "300ms"}, seen, "function")
    first = {"id": "a", "no": 1, "sum": 5}
    bodies = [first, {"id": "a", "no": 2, "sum": 6}, first, {**first, "sum": 7}]
    with TestApp(app) as test:
        outcomes = test.publish_many("orders", bodies)
    assert seen == [[first, bodies[1]]]
    assert [outcome.applied for outcome in outcomes] == [True, True, False, False]
    assert outcomes[2].duplicate
    assert outcomes[3].code == "conflict"


def test_a_message_of_a_group_that_fails_holds_its_key_alone() -> None:
    """With keys held in the ledger: each takes effect once, and those of its key after it, in order."""
    tries = Counter[int]()
    app = app_of()

    @app.consumer(
        topic="orders",
        name="note",
        batch={"limit": 10, "within": "1s", "by": "body.tenant"},
        on_retry="hold_key",
        retry={"attempts": 3, "backoff": {"first": "10ms", "jitter": 0}},
    )
    def note(orders: Batch[dict[str, Any]], session: Session) -> None:
        tries.update(order["no"] for order in orders)
        session.execute(text("INSERT INTO effects VALUES (:no)"), [{"no": order["no"]} for order in orders])
        if bad := {
            at: ValueError("not yet") for at, order in enumerate(orders) if order["no"] == 2 and tries[2] < 3
        }:
            raise BadItems(bad)

    with TestApp(app) as test:
        with test.session() as session, session.begin():
            session.execute(text("CREATE TABLE effects (no INTEGER)"))
        test.publish_many("orders", [{"id": "ab"[n % 2], "no": n, "tenant": "t"} for n in range(8)])
        for _ in range(20):
            test.clock.advance("1s")
        with test.session() as session:
            ran = list(session.scalars(text("SELECT no FROM effects ORDER BY rowid")))
    assert [no for no in ran if no % 2 == 0] == [0, 2, 4, 6]
    assert [no for no in ran if no % 2] == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("batch", "options", "said"),
    [
        ({"within": "2m"}, {}, "messages would wait 2m for others"),
        ({"within": "2s", "limit": 100}, {"in_flight": 50}, "so a batch never has 100"),
        ({"within": "2s"}, {"rate": "10/s"}, "so a batch never has 500"),
        ({"by": "topic"}, {}, "the same value for every message"),
        ({"by": "body.x =="}, {}, "`by` cannot be used"),
        ({"within": "0s"}, {}, "longer than zero"),
        ({"within": 2}, {}, "has no unit"),
        ({"for": "2s"}, {}, "for"),
        (
            {"by": "body.x"},
            {"effects": "external", "strategies": ["none"]},
            "external effects have no batches",
        ),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch: Any, options: Any, said: str) -> None:
    """With what to write instead."""
    app = app_of()
    consumer(app, batch, [], "function", **options)
    with pytest.raises(ConfigError) as caught:
        app.plan()
    assert said in str(caught.value)


def test_a_handler_of_one_message_has_no_batches_to_wait_for() -> None:
    """It would only be late."""
    app = app_of()
    app.consumer(topic="orders", name="note", batch={"within": "2s"})(lambda order: None)
    with pytest.raises(ConfigError, match="takes one message at a time"):
        app.plan()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 4, "in_flight": 200}, "less than a batch of 100 for each of 4 workers"),
        ({"rate": {"limit": "100/s", "burst": 20}}, "the rate hands out 20 messages at once"),
        ({"concurrency": {"by": "body.tenant", "limit": 10}}, "a batch never has 100"),
    ],
)
def test_what_keeps_a_batch_from_filling_is_said(options: Any, said: str) -> None:
    """As a warning: nothing is wrong with it but the size."""
    app = app_of()
    consumer(app, {"limit": 100, "within": "2s", "by": "body.tenant"}, [], "function", **options)
    assert any(said in warning for warning in app.plan().warnings), app.plan().warnings
