"""Outcomes of handlers whose effects are outside of the database: plain functions and coroutines."""

import asyncio
from typing import Any

import pytest

from oncemq import Done, Envelope, NotDone, Publisher, Reject, Retry
from oncemq.testing import Status, TestApp
from suites.kit.conftest import Bench


def _start(bench: Bench, handler: Any = None, *strategies: Any, **options: Any) -> tuple[TestApp, str]:
    topic = bench.topic(identity=["body.id"], strategies=list(strategies) or ["none"])
    bench.consume(topic, handler or bench.act, name="act", effects="external", **options)
    return bench.start(), topic


def _async(bench: Bench) -> Any:
    async def act(body: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return bench.act(body)

    return act


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def _handler(bench: Bench, *, is_async: bool) -> Any:
    return _async(bench) if is_async else bench.act


@BOTH
def test_it_runs_and_returns(bench: Bench, *, is_async: bool) -> None:
    """The outcome has the handler's result, also a coroutine's."""
    app, topic = _start(bench, _handler(bench, is_async=is_async))
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.applied, outcome.result, bench.effects) == (True, "did a", ["a"])


@BOTH
def test_a_failure_is_retried(bench: Bench, *, is_async: bool) -> None:
    """The second attempt succeeds."""
    app, topic = _start(bench, _handler(bench, is_async=is_async))
    bench.failures = [ConnectionError("away")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert outcome.history()[0].status is Status.RETRIED
    app.clock.advance("1s")
    assert (outcome.applied, outcome.attempt) == (True, 2)


@BOTH
def test_an_immediate_try_costs_no_attempt(bench: Bench, *, is_async: bool) -> None:
    """The message runs again in the same process."""
    app, topic = _start(bench, _handler(bench, is_async=is_async), retry={"immediate": 1})
    bench.failures = [ConnectionError("away")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.applied, outcome.attempt, bench.effects) == (True, 1, ["a"])


@BOTH
def test_reject_is_a_dead_letter(bench: Bench, *, is_async: bool) -> None:
    """As for every handler."""
    app, topic = _start(bench, _handler(bench, is_async=is_async))
    bench.failures = [Reject("unknown address")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.dead_letter, outcome.reason) == (True, "unknown address")
    assert [letter.key for letter in app.dead_letters("act")] == ["k"]


@BOTH
def test_two_phase_finds_a_duplicate(bench: Bench, *, is_async: bool) -> None:
    """The effect is not repeated."""
    app, topic = _start(bench, _handler(bench, is_async=is_async), "two_phase")
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    assert (outcome.applied, app.duplicate(outcome).duplicate, bench.effects) == (True, True, ["a"])


@BOTH
def test_two_phase_survives_a_crash_after_its_claim_is_done(bench: Bench, *, is_async: bool) -> None:
    """The process dies before it acknowledges; the effect is not repeated."""
    app, topic = _start(bench, _handler(bench, is_async=is_async), "two_phase")
    outcome = app.crash_after_commit(topic, {"id": "a", "key": "k"})
    assert (outcome.duplicate, bench.effects) == (True, ["a"])


def test_without_a_record_a_crash_repeats_the_effect(bench: Bench) -> None:
    """`none` is at-least-once, and the kit shows it."""
    app, topic = _start(bench)
    outcome = app.crash_after_commit(topic, {"id": "a", "key": "k"})
    assert (outcome.applied, bench.effects) == (True, ["a", "a"])


def test_a_failed_effect_that_verify_denies_is_retried(bench: Bench) -> None:
    """`verify` says that nothing happened."""
    asked: list[str] = []

    def verify(envelope: Envelope) -> Any:
        asked.append(envelope.key)
        return NotDone

    app, topic = _start(bench, None, {"two_phase": {"verify": verify}})
    bench.failures = [ConnectionError("away")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("2s")
    assert (outcome.applied, bench.effects) == (True, ["a"])
    assert asked[:1] == ["k"]


def test_a_failed_effect_that_verify_confirms_is_not_repeated(bench: Bench) -> None:
    """`verify` says that it happened all the same."""
    app, topic = _start(bench, None, {"two_phase": {"verify": lambda _envelope: Done("known")}})
    bench.failures = [ConnectionError("no answer")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("2s")
    assert not outcome.dead_letter
    assert bench.effects == []


def test_retry_means_that_nothing_happened(bench: Bench) -> None:
    """`raise Retry` needs no verify."""
    app, topic = _start(bench, None, "two_phase")
    bench.failures = [Retry("busy")]
    outcome = app.publish(topic, {"id": "a", "key": "k"})
    app.clock.advance("1s")
    assert (outcome.applied, bench.effects) == (True, ["a"])


def test_what_a_direct_handler_publishes_is_seen(bench: Bench) -> None:
    """It is sent before the message is acknowledged."""
    bench.app.topic(f"sent.{bench.name}", key="body.to")

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(f"sent.{bench.name}", {"to": body["key"]})

    app, topic = _start(bench, handle)
    assert app.publish(topic, {"id": "a", "key": "k"}).applied
    assert [sent.body for sent in app.published(f"sent.{bench.name}")] == [{"to": "k"}]


def test_many_coroutines_are_in_flight_together(bench: Bench) -> None:
    """Messages that arrive together run side by side, in the test's own thread on the broker in memory."""
    running: list[int] = []
    seen: list[int] = []

    async def handle(_: dict[str, Any]) -> None:
        running.append(1)
        await asyncio.sleep(0.01)
        seen.append(len(running))
        running.pop()

    app, topic = _start(bench, handle)
    outcomes = app.publish_many(topic, [{"id": str(number), "key": str(number)} for number in range(5)])
    assert all(outcome.applied for outcome in outcomes)
    assert max(seen) > 1
