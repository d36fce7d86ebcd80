"""A producer that asks for a delay of one message: `asked_delay` of a consumer."""

from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import App, Batch, ConfigError
from oncemq.testing import TestApp
from suites.kit.conftest import Bench, Effect, effects

ALLOWED = {"by": "headers.delay", "limit": "10s"}
ORDER = {"id": "a", "key": "k"}


def _start(
    bench: Bench, *, strategies: Any = None, handler: Any = None, **options: Any
) -> tuple[TestApp, str]:
    topic = bench.topic(**({} if strategies is None else {"strategies": strategies}))
    options.setdefault("asked_delay", ALLOWED)
    bench.consume(topic, handler or bench.apply, name="apply", **options)
    return bench.start(), topic


def test_a_message_waits_as_its_producer_asks(bench: Bench) -> None:
    """Later ones of its key do not wait for it; its wait is no attempt."""
    app, topic = _start(bench)
    late = app.publish(topic, ORDER, headers={"delay": "2s"})
    assert late.waiting
    assert app.publish(topic, {"id": "b", "key": "k"}).applied
    assert effects(app) == ["b"]
    app.clock.advance("4s")
    assert (late.applied, late.attempt) == (True, 1)
    assert effects(app) == ["b", "a"]


def test_producers_have_no_say_unless_that_is_allowed(bench: Bench) -> None:
    """A header that every producer can write changes nothing by itself."""
    app, topic = _start(bench, asked_delay=None)
    assert app.publish(topic, ORDER, headers={"delay": "1h"}).applied


@pytest.mark.parametrize("asked", ["1h", "99999999d", "2999-01-01T00:00:00Z"])
def test_the_consumers_limit_is_the_longest_wait(bench: Bench, asked: str) -> None:
    """Who asks for more gets this one, also who asks for longer than calendars go."""
    app, topic = _start(bench, asked_delay=ALLOWED | {"limit": "1s"})
    outcome = app.publish(topic, ORDER, headers={"delay": asked})
    assert outcome.waiting
    app.clock.advance("3s")
    assert outcome.applied


@pytest.mark.parametrize(
    "asked", ["soon", "30", "-5s", "0s", "2999-01-01T00:00:00", "1e9", "", "nan", "9" * 400 + "d"]
)
def test_a_delay_that_cannot_be_read_is_a_dead_letter(bench: Bench, asked: str) -> None:
    """It is neither run nor dropped, since its meaning is not known; `30` has no unit."""
    app, topic = _start(bench)
    outcome = app.publish(topic, ORDER, headers={"delay": asked})
    assert (outcome.dead_letter, outcome.code) == (True, "delay")
    assert "such as 30s" in outcome.reason
    assert effects(app) == []


def test_a_moment_that_is_over_is_no_delay(bench: Bench) -> None:
    """Nothing waits."""
    app, topic = _start(bench)
    assert app.publish(topic, ORDER, headers={"delay": "2001-01-01T00:00:00Z"}).applied


def test_a_message_that_failed_does_not_wait_again(bench: Bench) -> None:
    """Its retries have the pauses of the consumer."""
    app, topic = _start(bench)
    bench.failures = [ValueError("once")]
    outcome = app.publish(topic, ORDER, headers={"delay": "1s"})
    app.clock.advance("4s")
    assert (outcome.applied, outcome.attempt) == (True, 2)
    assert effects(app) == ["a"]


def test_a_copy_of_an_applied_message_is_a_duplicate(bench: Bench) -> None:
    """At any time."""
    app, topic = _start(bench)
    assert app.publish(topic, ORDER).applied
    assert app.publish(topic, ORDER, headers={"delay": "5s"}).duplicate


def test_an_effect_outside_of_the_database_waits(bench: Bench) -> None:
    """A handler with external effects is called when the time has come, and once."""
    app, topic = _start(bench, handler=bench.act, strategies=["none"], effects="external")
    outcome = app.publish(topic, ORDER, headers={"delay": "1s"})
    assert bench.effects == []
    app.clock.advance("3s")
    assert outcome.applied
    assert bench.effects == ["a"]


def test_a_claim_of_a_message_that_waits_is_given_up(bench: Bench) -> None:
    """Its effect is not in doubt when it returns."""
    verify = "suites.kit.test_expiry:never_asked"
    app, topic = _start(
        bench, handler=bench.act, strategies=[{"two_phase": {"verify": verify}}], effects="external"
    )
    outcome = app.publish(topic, ORDER, headers={"delay": "1s"})
    app.clock.advance("3s")
    assert outcome.applied
    assert bench.effects == ["a"]


def test_a_number_that_waits_holds_back_the_next_ones(bench: Bench) -> None:
    """Where a strategy keeps an order, the delay of one message is that of its successors."""
    app, topic = _start(bench, strategies=[{"sequence": {"order": "body.seq"}}])
    first = app.publish(topic, {"id": "1", "key": "k", "seq": 1}, headers={"delay": "1s"})
    second = app.publish(topic, {"id": "2", "key": "k", "seq": 2})
    assert effects(app) == []
    app.clock.advance("4s")
    assert (first.applied, second.applied) == (True, True)
    assert effects(app) == ["1", "2"]


def test_a_key_is_held_by_failures_alone(bench: Bench) -> None:
    """With `on_retry: hold_key` a message that only waits holds back nothing."""
    app, topic = _start(bench, on_retry="hold_key")
    late = app.publish(topic, ORDER, headers={"delay": "2s"})
    assert app.publish(topic, {"id": "b", "key": "k"}).applied
    app.clock.advance("4s")
    assert late.applied


def test_a_batch_goes_on_without_it(bench: Bench) -> None:
    """The others of its batch are applied."""

    def handle(orders: Batch[dict[str, Any]], session: Session) -> None:
        session.add_all([Effect(text=order["id"]) for order in orders])

    app, topic = _start(bench, handler=handle)
    late = app.publish(topic, ORDER, headers={"delay": "1s"})
    assert app.publish(topic, {"id": "b", "key": "k"}).applied
    app.clock.advance("3s")
    assert late.applied
    assert effects(app) == ["b", "a"]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"by": "headers.delay =="}, "the delay is not usable"),
        ({"limit": "8d"}, "a longer keep"),
        ({"limit": None}, "limit"),
        ({"limit": "30"}, "30"),
    ],
)
def test_a_delay_that_cannot_be_kept_is_refused(declared: Any, said: str) -> None:
    """At its line."""
    app = App("shop", brokers={"main": "amqp://localhost/"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", strategies=["unique_key"], identity="message_id")
    app.consumer(topic="orders", name="note", asked_delay=ALLOWED | declared)(lambda order: None)
    with pytest.raises(ConfigError) as caught:
        app.plan()
    assert said in str(caught.value)
