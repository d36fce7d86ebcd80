"""Tests of a whole app in one process: started, watched, drained and closed; suspects, roster and leases."""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.engine.application import Application
from oncemq.engine.base.hook_points import POINTS
from oncemq.engine.plan import AppPlan
from oncemq.engine.workers.worker import Worker
from oncemq.errors import BrokerUnavailable, ConfigError, InfrastructureError, LedgerError
from oncemq.ledger.database.engine import make_engine
from oncemq.message import headers
from oncemq.message.envelope import Delivery
from oncemq.observe.state import Phase
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.application import Run, adapter, engine, give, order, points, roster, until
from support.engine import make_app, make_consumer, running

__all__ = ["adapter", "engine"]


WAIT = 10.0


def test_nothing_is_acknowledged_before_its_commit(adapter: ScriptedAdapter, engine: Engine) -> None:
    """At the moment of the acknowledgement another connection sees the effect."""
    seen: list[list[int]] = []
    acknowledge = adapter.acknowledge

    def looking(deliveries: Any) -> Any:
        seen.append(points(engine))
        return acknowledge(deliveries)

    adapter.acknowledge = looking  # type: ignore[method-assign]
    with running(make_app(adapter, engine, make_consumer(give))):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert seen == [[1]]


def test_bad_messages_are_buried_whole_and_the_rest_goes_on(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Undecodable, without key and with a bad key: each a dead letter with its own bytes and reason."""
    bad = {b"{": "undecodable", b'{"id": 1}': "no-key", b'{"id": 1, "key": ""}': "invalid-key"}
    with running(make_app(adapter, engine, make_consumer(give))):
        for body in bad:
            adapter.deliver(body)
        adapter.deliver(order(7))
        adapter.wait_until(lambda a: len(a.dead) == 3 and len(a.acknowledged) == 1)
    assert {letter.delivery.message.body: letter.headers[headers.REASON] for letter in adapter.dead} == bad
    assert all(letter.headers[headers.ERROR_TEXT] for letter in adapter.dead)


def test_a_drain_finishes_what_runs_and_returns_the_rest(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Stopped in the middle of a message: that one is committed, what waits goes back, the code is 0."""
    began, go_on = threading.Event(), threading.Event()

    def handle(order: dict, session: Session) -> None:
        give(order, session)
        began.set()
        go_on.wait(WAIT)

    run = Run(make_app(adapter, engine, make_consumer(handle))).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    assert began.wait(WAIT)
    adapter.deliver(order(2))
    run.app.stop()
    run.heard.wait_for("draining")
    go_on.set()
    assert run.end() == 0
    assert points(engine) == [1]
    assert [json.loads(delivery.message.body)["id"] for delivery in adapter.given_back] == [2]
    assert run.heard.of("drained")[0].fields["returned"] == 1


def test_a_drain_ends_with_the_grace(adapter: ScriptedAdapter, engine: Engine, tmp_path: Path) -> None:
    """A handler that does not return delays no end: the code is 1, its message is not charged, closing has time left."""
    began, go_on = threading.Event(), threading.Event()

    def handle(order: dict, session: Session) -> None:
        began.set()
        go_on.wait()

    plan = make_app(adapter, engine, make_consumer(handle), grace=timedelta(milliseconds=200), state=tmp_path)
    run = Run(plan).start()
    try:
        run.heard.wait_for("consumer_started")
        adapter.deliver(order(1))
        assert began.wait(WAIT)
        run.app.stop()
        assert run.end() == 1
        assert adapter.grace > timedelta(0)
        assert not list(tmp_path.glob("*.recorder"))
    finally:
        go_on.set()


def test_a_drain_does_not_storm_a_broker_that_is_away(adapter: ScriptedAdapter, engine: Engine) -> None:
    """While stopping, a settlement that fails is tried again with pauses, not as fast as it can."""
    adapter.fail_next("acknowledge", times=100_000)
    run = Run(make_app(adapter, engine, make_consumer(give), grace=timedelta(seconds=1))).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    run.heard.wait_for("settle_failed")
    run.app.stop()
    run.end()
    assert len(run.heard.of("settle_failed")) < 60


def test_a_drain_settles_when_the_broker_comes_back_in_time(adapter: ScriptedAdapter, engine: Engine) -> None:
    """What was committed is acknowledged within the grace, though the broker is away when the app is stopped."""
    adapter.fail_next("acknowledge", times=4)
    run = Run(make_app(adapter, engine, make_consumer(give))).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    run.heard.wait_for("settle_failed")
    run.app.stop()
    assert run.end() == 0
    assert len(adapter.acknowledged) == 1


@pytest.mark.parametrize("call", ["pause", "give_back", "close"])
def test_a_broker_that_fails_while_draining_keeps_nothing_open(
    call: str, adapter: ScriptedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """The end goes on to its end: signed off, recorders gone."""

    def fail(*_: Any, **__: Any) -> Any:
        raise BrokerUnavailable("away")

    began, go_on = threading.Event(), threading.Event()

    def handle(order: dict, session: Session) -> None:
        began.set()
        go_on.wait(WAIT)

    run = Run(make_app(adapter, engine, make_consumer(handle), state=tmp_path)).start()
    run.heard.wait_for("consumer_started")
    setattr(adapter, call, fail)
    adapter.deliver(order(1))
    assert began.wait(WAIT)
    adapter.deliver(order(2))
    run.app.stop()
    go_on.set()
    run.end()
    assert run.error is None
    assert run.heard.of("stopped")
    assert roster(engine) == []
    assert not [*tmp_path.glob("*.recorder"), *tmp_path.glob("*.alive")]


def test_an_app_can_run_again(adapter: ScriptedAdapter, engine: Engine, tmp_path: Path) -> None:
    """After an ordered end the same database and state folder serve a new app."""
    for number in range(2):
        broker = ScriptedAdapter()
        with running(make_app(broker, engine, make_consumer(give), state=tmp_path)):
            broker.deliver(order(number))
            broker.wait_until(lambda a: len(a.acknowledged) == 1)
    assert points(engine) == [0, 1]


def test_every_named_point_is_passed(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Anyone who wants to kill the process at a point of a message's way finds that point on it."""
    passed: list[str] = []
    with running(make_app(adapter, engine, make_consumer(give)), point=passed.append):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
        adapter.deliver(order(2, fault="raise"))
        adapter.wait_until(lambda a: len(a.retried) == 1)
        adapter.deliver(b"{")
        adapter.wait_until(lambda a: len(a.dead) == 1)
    assert set(passed) == set(POINTS)
    assert [name for name in passed if name in POINTS[:9]][:9] == list(POINTS[:9])


# Starting


def test_missing_tables_say_what_to_type(adapter: ScriptedAdapter, engine: Engine) -> None:
    """The ledger is never created behind one's back."""
    plan = AppPlan("shop", {"main": adapter}, engine, (make_consumer(give),), make_app(adapter, None).clock)
    with pytest.raises(LedgerError, match="oncemq tables create"):
        Application(plan).run()
    assert adapter.closed


@pytest.mark.parametrize(
    "error", [BrokerUnavailable("no broker at amqp://shop:5672"), ValueError("a bug in the adapter")]
)
def test_a_start_that_fails_closes_everything(
    error: Exception, adapter: ScriptedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """A broker that cannot be opened, for whatever reason: no worker, recorder or roster row is left."""
    adapter.fail_next("open", error)
    before = threading.active_count()
    plan = make_app(adapter, engine, make_consumer(give), state=tmp_path)
    app = Application(plan)
    with pytest.raises(type(error), match=str(error)):
        app.run()
    assert adapter.closed
    assert threading.active_count() == before
    assert roster(engine) == []
    assert not [*tmp_path.glob("*.recorder"), *tmp_path.glob("*.alive")]
    assert app.state().phase is Phase.STOPPED


def test_what_an_open_broker_delivered_is_returned_when_another_fails(
    adapter: ScriptedAdapter, engine: Engine
) -> None:
    """The first broker sends messages while the second refuses: they are finished or go back."""
    second = ScriptedAdapter()
    plan = make_app(adapter, engine, make_consumer(give), make_consumer(give, name="other"))
    plan = replace(
        plan,
        adapters={"main": adapter, "second": second},
        consumers=(plan.consumers[0], replace(plan.consumers[1], broker="second")),
    )

    def refuse(*_: Any) -> None:
        for number in range(20):
            adapter.deliver(order(number))
        raise BrokerUnavailable("away")

    second.open = refuse  # type: ignore[method-assign]
    with pytest.raises(BrokerUnavailable):
        Application(plan).run()
    assert len(adapter.acknowledged) + len(adapter.given_back) == 20
    assert points(engine) == sorted(json.loads(done.message.body)["id"] for done in adapter.acknowledged)


def test_a_state_folder_that_cannot_be_written_is_a_clear_error(
    adapter: ScriptedAdapter, tmp_path: Path
) -> None:
    """The folder is named, and what to do."""
    (tmp_path / "file").write_text("")
    plan = make_app(adapter, None, state=tmp_path / "file" / "state")
    with pytest.raises(ConfigError, match=r"file/state.*cannot be written"):
        Application(plan).run()


def test_a_database_that_is_away_is_a_clear_error(adapter: ScriptedAdapter) -> None:
    """No traceback of a driver, no password."""
    engine = make_engine("postgresql+psycopg://loyalty:s3cret@127.0.0.1:1/loyalty")
    plan = replace(make_app(adapter, None, make_consumer(give)), engine=engine)
    with pytest.raises(InfrastructureError) as caught:
        Application(plan).run()
    assert "s3cret" not in str(caught.value)


# Idleness and state


def test_until_idle_ends_well(adapter: ScriptedAdapter, engine: Engine) -> None:
    """When nothing has come for so long the app drains and ends with 0."""
    run = Run(make_app(adapter, engine, make_consumer(give))).start(timedelta(milliseconds=300))
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    assert run.end() == 0
    assert points(engine) == [1]


def test_time_before_the_broker_was_open_is_no_idleness(adapter: ScriptedAdapter, engine: Engine) -> None:
    """An app that needs longer to connect than it may be idle still waits for its first message."""
    pause, opened = adapter.open, threading.Event()

    def slow(*arguments: Any) -> None:
        opened.wait(0.6)
        pause(*arguments)

    adapter.open = slow  # type: ignore[method-assign]
    run = Run(make_app(adapter, engine, make_consumer(give))).start(timedelta(milliseconds=400))
    run.heard.wait_for("consumer_started")
    assert not opened.wait(0.2)
    adapter.deliver(order(1))
    run.end()
    assert points(engine) == [1]


def test_looking_at_the_state_is_no_activity(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A health check every moment does not keep an idle app from ending."""
    run = Run(make_app(adapter, engine, make_consumer(give))).start(timedelta(milliseconds=300))
    run.heard.wait_for("consumer_started")
    for _ in range(1500):
        run.app.state()
        with suppress(AssertionError):
            run.heard.wait_for("draining", timeout=0.01)
            break
    else:
        pytest.fail("the app is kept awake by being looked at")
    assert run.end() == 0


def test_the_state_names_every_consumer(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Subscribed and live while running, stopped afterwards."""
    with running(make_app(adapter, engine, make_consumer(give), make_consumer(give, name="mail"))) as app:
        until(lambda: app.state().phase is Phase.RUNNING)
        rows = {row.consumer: row for row in app.state().consumers}
        assert rows.keys() == {"points", "mail"}
        assert all(row.live for row in rows.values())
    assert app.state().phase is Phase.STOPPED


def test_a_worker_that_has_ended_shows_and_ends_the_app(
    adapter: ScriptedAdapter, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug that ends a worker thread is told, and the app ends with 1 so that a supervisor starts it again."""

    def work(_worker: Worker, _taken: Sequence[Delivery]) -> None:
        raise RuntimeError("a bug in the engine")

    monkeypatch.setattr(Worker, "work", work)
    run = Run(make_app(adapter, engine, make_consumer(give))).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    assert run.end() == 1
    assert any("bug in the engine" in str(told.arguments[1]) for told in run.heard.of("failed"))


def test_an_adapter_that_raises_ends_no_worker(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A settlement that raises what no broker says concerns its own messages: it is told, and the app goes on."""
    settle = adapter.acknowledge

    def acknowledge(deliveries: Any) -> Any:
        if any(delivery.key == "k1" for delivery in deliveries):
            raise RuntimeError("a bug in the adapter")
        return settle(deliveries)

    adapter.acknowledge = acknowledge  # type: ignore[method-assign]
    run = Run(make_app(adapter, engine, make_consumer(give))).start()
    run.heard.wait_for("consumer_started")
    adapter.deliver(order(1))
    adapter.deliver(order(2))
    until(lambda: [delivery.key for delivery in adapter.acknowledged] == ["k2"])
    run.app.stop()
    assert run.end() == 0


def test_stopping_is_safe_in_a_signal_handler(adapter: ScriptedAdapter) -> None:
    """`stop` takes no lock that the interrupted thread may hold: it works inside its own waiting."""
    app = Application(make_app(adapter, None))
    for _ in range(3):
        app.stop()
    assert app.run() == 0


def test_leases_are_extended_while_a_message_runs(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A handler that takes longer than its lease keeps its message, and so do those that wait behind it."""
    go_on = threading.Event()
    adapter.capabilities = replace(adapter.capabilities, lease=True)  # type: ignore[misc]

    def handle(order: dict, session: Session) -> None:
        go_on.wait(WAIT)

    plan = make_app(adapter, engine, make_consumer(handle))
    with running(plan):
        held = [adapter.deliver(order(1)), adapter.deliver(order(2))]
        for delivery in held:
            delivery.expires_at = plan.clock.monotonic() + 14
        until(lambda: set(held) <= set(adapter.extended))
        go_on.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 2)
