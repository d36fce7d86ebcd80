"""Healthy and ready: what the verdicts depend on."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from oncemq.ledger.coordination.pauses import Pause
from oncemq.observe.health import health, readiness
from oncemq.observe.state import AppState, ConsumerState, PauseReason, Phase

NOW = 1000.0
LATE = NOW - 61
MINUTE = timedelta(minutes=1)


def row(**changes):
    """Return a consumer that does well, but for the changes."""
    values = {"consumer": "award", "subscribed": True, "last_progress": NOW - 1}
    return ConsumerState(**{**values, **changes})


def app(*rows, phase=Phase.RUNNING):
    """Return an app with these consumers."""
    return AppState(phase, rows)


def test_a_moving_app_is_healthy_and_ready():
    """Subscribed, not paused, with progress: both."""
    state = app(row(waiting=5))
    assert health(state, NOW, MINUTE).ok
    assert readiness(state, NOW).ok


def test_an_idle_app_is_healthy():
    """Nothing to do for long is no illness."""
    assert health(app(row(waiting=0, last_progress=LATE)), NOW, MINUTE).ok


def test_waiting_messages_without_progress_are_neither():
    """A consumer that has messages and settles none is said by both."""
    state = app(row(waiting=5, last_progress=LATE))
    said = ("consumer award has 5 messages and settled none for 61 s",)
    assert (health(state, NOW, MINUTE).problems, readiness(state, NOW, MINUTE).problems) == (said, said)


def test_a_consumer_without_subscription_is_not_ready():
    """An open socket is not enough: the broker must be sending to every expected consumer."""
    state = app(row(), row(consumer="mail", subscribed=False, detail="channel closed"))
    assert readiness(state, NOW).problems == ("consumer mail is not subscribed: channel closed",)


def test_a_broker_that_is_away_is_no_reason_to_restart():
    """A new process would not reach it, either."""
    assert health(app(row(subscribed=False, waiting=5, last_progress=LATE)), NOW, MINUTE).ok


def test_a_database_outage_makes_it_unready_but_healthy():
    """Restarting would not help, so the process lives on; it gets no work meanwhile."""
    state = app(row(paused=PauseReason.DATABASE, waiting=5, last_progress=LATE))
    assert health(state, NOW, MINUTE).ok
    assert readiness(state, NOW).problems == ("consumer award is paused (database)",)


@pytest.mark.parametrize("reason", [PauseReason.ASKED, PauseReason.BREAKER])
def test_a_pause_that_was_ordered_keeps_the_app_ready(reason):
    """It does what it was told; a rollout must not wait until an operator resumes the consumer."""
    by = Pause(
        "shop.award", "operator", "alice", "amqp://u:canary-7Q9z@h moves", datetime(2026, 1, 2, tzinfo=UTC)
    )
    report = readiness(app(row(paused=reason, waiting=5, last_progress=LATE, pauses=(by,))), NOW, MINUTE)
    assert report.ok
    (shown,) = report.consumers[0]["pauses"]
    assert (shown["who"], shown["since"], shown["until"]) == ("alice", "2026-01-02T00:00:00+00:00", None)
    assert "canary-7Q9z" not in shown["why"]


def test_a_strategy_that_raises_is_unhealthy():
    """Its state may be broken: a new process begins with a fresh one."""
    assert not health(app(row(paused=PauseReason.STRATEGY_BUG)), NOW, MINUTE).ok


def test_a_missing_table_is_no_reason_to_restart():
    """A new process would miss it, too."""
    state = app(row(paused=PauseReason.SETUP, waiting=5, last_progress=LATE))
    assert (health(state, NOW, MINUTE).ok, readiness(state, NOW).ok) == (True, False)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING])
def test_starting_and_draining_are_healthy_but_not_ready(phase):
    """Neither is a reason to kill the process."""
    state = app(row(subscribed=False), phase=phase)
    assert health(state, NOW, MINUTE).ok
    assert f"the app is {phase.value}" in readiness(state, NOW).problems


def test_a_stopped_app_is_neither():
    """A process whose app has ended should go."""
    state = app(row(), phase=Phase.STOPPED)
    assert (health(state, NOW, MINUTE).ok, readiness(state, NOW).ok) == (False, False)


def test_an_app_that_expects_no_consumer_is_neither():
    """No news of consumers is no good news."""
    assert (health(app(), NOW, MINUTE).ok, readiness(app(), NOW).ok) == (False, False)


def test_a_report_shows_no_credentials():
    """A detail that holds a URL is masked, in the problem and in the row."""
    report = readiness(app(row(subscribed=False, detail="amqp://u:canary-7Q9z@h gone\n")), NOW)
    assert "canary-7Q9z" not in json.dumps(report.as_json())


def test_a_report_says_everything_about_each_consumer():
    """The JSON holds one row for each consumer."""
    report = health(app(row(waiting=2, in_flight=3, depth=4)), NOW, MINUTE)
    assert report.as_json() == {
        "ok": True,
        "phase": "running",
        "problems": [],
        "consumers": [
            {
                "consumer": "award",
                "subscribed": True,
                "paused": None,
                "waiting": 2,
                "in_flight": 3,
                "depth": 4,
                "seconds_since_progress": 1.0,
                "exclusive": False,
                "detail": "",
                "pauses": [],
                "breakers": {},
            }
        ],
    }
