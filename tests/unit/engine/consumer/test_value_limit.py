"""A limit by value: what is above it waits with its key, and blocks no other value."""

import asyncio
import gzip
import json
from collections import Counter
from datetime import timedelta
from itertools import chain
from random import Random
from threading import Event, Lock
from typing import Any

import pytest

from oncemq import App, Batch, ConfigError, NewMessage
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.consumer.value_limit import ValueLimit
from oncemq.engine.rates.rule import ConcurrencyRule
from oncemq.message.envelope import Delivery, Message
from oncemq.testing import TestApp
from oncemq.testing.fake_clock import FakeClock

READ = ValueLimit(ConcurrencyRule("body.merchant", 1))
"""Reads values as an intake does."""


def delivery(name: str, *, generation: int = 1) -> Delivery:
    """Return a delivery: its first letter is its key, what follows the second its merchant."""
    made = Delivery(Message("orders", name.encode()), token=name, generation=generation)
    made.key = name[0]
    made.payload = {"merchant": name[2:] or None}
    READ.note(made, made.payload)
    return made


def limited(limit: int, *names: str) -> Scheduler:
    """Return a scheduler with a limit by merchant, and deliveries."""
    scheduler = Scheduler(FakeClock())
    scheduler.values = ValueLimit(ConcurrencyRule("body.merchant", limit))
    scheduler.put([delivery(name) for name in names])
    return scheduler


def names(deliveries: list[Delivery]) -> list[str]:
    """Return the names of deliveries, in order."""
    return [each.token for each in deliveries]


def test_no_more_of_a_value_are_in_work_than_its_limit() -> None:
    """Others pass, also those without a value; nothing is left that a taker would look at again and again."""
    scheduler = limited(2, "a1big", "b1big", "c1big", "d1small", "e1", "f1")
    taken = scheduler.take(10, 0)
    assert names(taken) == ["a1big", "b1big", "d1small", "e1", "f1"]
    assert scheduler.take(10, 0) == []
    assert len(scheduler._ready) == 0
    scheduler.done(taken[2:])
    assert scheduler.take(10, 0) == []
    scheduler.done(taken[:1])
    assert names(scheduler.take(10, 0)) == ["c1big"]


def test_a_key_waits_whole_behind_one_that_has_no_room() -> None:
    """Its later messages do not overtake, whatever their values."""
    scheduler = limited(1, "a1big", "b1big", "b2small", "a2big", "a3small", "c1small")
    first = scheduler.take(10, 0)
    assert names(first) == ["a1big", "c1small"]
    scheduler.put([delivery("b3")])
    scheduler.done(first)
    second = scheduler.take(10, 0)
    assert names(second) == ["b1big", "b2small", "b3"]
    scheduler.done(second)
    assert names(scheduler.take(10, 0)) == ["a2big", "a3small"]


def test_the_longest_waiting_key_is_next() -> None:
    """A key with many messages does not keep the room."""
    scheduler = limited(1, "a1big", "a2big", "a3big", "b1big", "c1big")
    seen = []
    for _ in range(5):
        taken = scheduler.take(10, 0)
        seen += names(taken)
        scheduler.done(taken)
    assert seen == ["a1big", "b1big", "c1big", "a2big", "a3big"]


def test_what_is_lost_or_released_gives_its_room_to_the_next() -> None:
    """Else the others of its value would wait for ever."""
    scheduler = limited(1, "a1big")
    scheduler.put([delivery("b1big", generation=2), delivery("c1big", generation=3), delivery("d1big")])
    taken = scheduler.take(10, 0)
    assert names(taken) == ["a1big"]
    assert scheduler.take(10, 0) == []
    assert names(scheduler.release(2)) == ["b1big"]
    scheduler.void(3, alone=True)
    scheduler.done(taken)
    assert names(scheduler.take(10, 0)) == ["d1big"]


def test_a_retry_has_the_value_that_it_first_had() -> None:
    """Though its handler has changed the body, or it is not decoded yet."""
    scheduler = limited(1, "a1big", "b1big")
    taken = scheduler.take(10, 0)
    taken[0].payload = None
    scheduler.done(taken, back=taken)
    again = scheduler.take(10, 0)
    assert len(again) == 1
    assert scheduler.take(10, 0) == []


def test_keys_that_wait_for_room_are_not_owned() -> None:
    """So that a queue may be given up when no worker runs; what waited is returned in order."""
    scheduler = limited(1, "a1big", "b1big", "b2big")
    taken = scheduler.take(10, 0)
    assert scheduler.withdraw() == []
    scheduler.done(taken)
    assert not scheduler.owned()
    assert names(scheduler.withdraw()) == ["b1big", "b2big"]


@pytest.mark.parametrize("seed", range(20))
def test_everything_runs_once_within_the_limit_and_in_the_order_of_its_key(seed: int) -> None:
    """With takers that end in any order, return some, and let keys sleep."""
    draw, clock = Random(seed), FakeClock()
    scheduler = Scheduler(clock, one_per_key=draw.random() < 0.3)
    scheduler.values = ValueLimit(ConcurrencyRule("body.merchant", 2))
    sent = [
        f"{draw.choice('abcd')}{draw.choice('x123')}{draw.choice(['', 'm', 'n', 'o'])}" for _ in range(60)
    ]
    scheduler.put([delivery(name) for name in sent])
    running: list[list[Delivery]] = []
    ran: list[str] = []
    for _ in range(10_000):
        if len(ran) == len(sent):
            break
        taken = scheduler.take(draw.randint(1, 6), 0)
        if taken:
            running.append(taken)
        work = [each.payload["merchant"] for unit in running for each in unit]
        assert all(work.count(value) <= 2 for value in set(work) - {None})
        if running and (not taken or draw.random() < 0.5):
            unit = running.pop(draw.randrange(len(running)))
            back = unit[draw.randint(0, len(unit)) :] if draw.random() < 0.3 else []
            keys = {each.key for each in back}
            back = [each for each in unit if each.key in keys and each in back]
            ran += [each.token for each in unit if each not in back]
            scheduler.done(unit, back, {key: 1.0 for key in keys if draw.random() < 0.5})
        elif not running:
            clock.advance(timedelta(seconds=2))
    for key in "abcd":
        assert [name for name in ran if name[0] == key] == [name for name in sent if name[0] == key]


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_a_consumer_keeps_to_it(compressed: bool) -> None:
    """A batch has at most so many messages of one merchant, also where a body is decoded again when it runs."""
    seen: list[list[str]] = []
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])

    @app.consumer(topic="orders", batch={"limit": 100}, concurrency={"by": "body.merchant", "limit": 3})
    def note(orders: Batch[dict[str, Any]]) -> None:
        seen.append([order["merchant"] for order in orders])

    bodies = [{"id": str(n), "merchant": "small" if n % 4 == 3 else "big"} for n in range(24)]
    with TestApp(app) as test:
        packed = [
            NewMessage(gzip.compress(json.dumps(body).encode()), headers={"content-encoding": "gzip"})
            for body in bodies
        ]
        test.publish_many("orders", packed if compressed else bodies)
    assert Counter(chain(*seen)) == {"big": 18, "small": 6}
    assert max(len(batch) for batch in seen) > 1, "nothing was together"
    assert all(count <= 3 for batch in seen for count in Counter(batch).values()), seen
    assert app.plan().consumers[0].concurrency == ConcurrencyRule("body.merchant", 3)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"by": "body.merchant ==", "limit": 3}, "`by` cannot be used"),
        ({"by": "topic", "limit": 3}, "has the same value for every message"),
        ({"by": "body.merchant", "limit": 0}, "limit"),
        ({"by": "body.merchant"}, "limit"),
        ({"limit": 3}, "by"),
        ({"by": "body.merchant", "limit": 3, "most": 1}, "most"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(declared: Any, said: str) -> None:
    """At its line."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    app.consumer(topic="orders", name="note", concurrency=declared)(lambda order: None)
    with pytest.raises(ConfigError) as caught:
        app.plan()
    assert said in str(caught.value)


@pytest.mark.parametrize("is_async", [False, True])
def test_it_holds_for_handlers_that_run_at_once(is_async: bool) -> None:
    """In threads, and as coroutines: of one merchant two run, of others more."""
    running, most, lock = Counter[str](), Counter[str](), Lock()
    app = App("shop", brokers={"main": "embedded://"})
    app.topic("orders", key="body.id", identity="message_id", strategies=["none"])

    def begin(merchant: str) -> None:
        with lock:
            running[merchant] += 1
            most[merchant] = max(most[merchant], running[merchant])
            if running["big"] == 2:
                both.set()

    def end(merchant: str) -> None:
        with lock:
            running[merchant] -= 1

    both = Event()

    def wait(order: dict[str, Any]) -> None:
        begin(order["merchant"])
        assert order["merchant"] != "big" or both.wait(30)
        end(order["merchant"])

    async def wait_async(order: dict[str, Any]) -> None:
        begin(order["merchant"])
        assert order["merchant"] != "big" or await asyncio.to_thread(both.wait, 30)
        end(order["merchant"])

    limit = {"by": "body.merchant", "limit": 2}
    app.consumer(topic="orders", name="note", workers=8, concurrency=limit)(wait_async if is_async else wait)
    bodies = [{"id": str(n), "merchant": "big" if n % 2 else f"m{n}"} for n in range(40)]
    with TestApp(app, real=True) as test:
        outcomes = test.publish_many("orders", bodies)
    assert all(outcome.applied for outcome in outcomes)
    assert most["big"] == 2
