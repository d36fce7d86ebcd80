"""Tests of messages that are too old, under a test's clock."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.engine.base.expiry import moment_of
from oncemq.testing import Status, TestApp
from suites.kit.conftest import Base, Effect, effects
from support.declared import BASE, loaded, problems


class Handler:
    """Writes effects; fails first if failures are ordered."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    def __call__(self, body: dict[str, Any], session: Session) -> None:
        """Write an effect, or fail."""
        if self._failures:
            raise self._failures.pop(0)
        session.add(Effect(text=body["id"]))


def _app(handler: Callable[..., Any], *strategies: Any, **options: Any) -> TestApp:
    app = App("kit", brokers={"main": "amqp://nowhere/"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.key", identity=["body.id"], strategies=list(strategies) or ["unique_key"])

    def handle(body: dict[str, Any], session: Session) -> None:
        handler(body, session)

    app.consumer(topic="orders", name="apply", **options)(handle)
    return TestApp(app, tables=Base.metadata)


def _order(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "key": "k", **more}


def test_a_message_that_failed_is_never_dropped_in_silence() -> None:
    """When its time is over before its retry, it is a dead letter with its error."""
    retry = {"backoff": {"first": "15m", "max": "15m"}}
    with _app(Handler(ConnectionError("bank away")), expires="10m", retry=retry) as app:
        outcome = app.publish("orders", _order())
        assert outcome.status is Status.RETRIED
        app.clock.advance("20m")
        assert (outcome.dead_letter, outcome.code) == (True, "expired")
        assert "bank away" in outcome.reason
        assert effects(app) == []


def test_a_retry_within_its_time_runs() -> None:
    """The time counts from the first publishing."""
    retry = {"backoff": {"first": "5m", "max": "5m", "jitter": 0}}
    with _app(Handler(ConnectionError("bank away")), expires="10m", retry=retry) as app:
        outcome = app.publish("orders", _order())
        app.clock.advance("6m")
        assert outcome.applied


def test_a_parked_message_expires_while_it_waits() -> None:
    """When its turn comes too late, it does not run; its number is used up."""
    with _app(Handler(), {"sequence": {"order": "body.seq"}}, expires="10m") as app:
        early = app.publish("orders", _order("2", seq=2))
        assert early.parked
        app.clock.advance("11m")
        assert app.publish("orders", _order("1", seq=1)).applied
        assert early.expired
        assert app.publish("orders", _order("3", seq=3)).applied
        assert effects(app) == ["1", "3"]


def test_the_history_has_it() -> None:
    """An expired message is shown when its key is asked for."""
    with _app(Handler(), expires="headers.deadline") as app:
        app.publish("orders", _order(), headers={"deadline": "2001-01-01T00:00:00Z"})
        rows = app.session().connection().exec_driver_sql("SELECT outcome, reason FROM oncemq_history").all()
        assert rows == [("expired", "its deadline was 2001-01-01T00:00:00+00:00")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-25T12:00:00Z", datetime(2026, 11, 25, 12, tzinfo=UTC)),
        ("2026-11-25T12:00:00.5+08:00", datetime(2026, 11, 25, 4, 0, 0, 500_000, tzinfo=UTC)),
        (1_764_000_000, datetime(2025, 11, 24, 16, tzinfo=UTC)),
        ("1764000000", datetime(2025, 11, 24, 16, tzinfo=UTC)),
        (1_764_000_000_000, datetime(2025, 11, 24, 16, tzinfo=UTC)),
        (1_764_000_000.25, datetime(2025, 11, 24, 16, 0, 0, 250_000, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_deadlines_are_read_in_the_usual_forms(value: Any, expected: datetime) -> None:
    """ISO 8601 with a time zone; seconds and milliseconds since 1970, as number or text."""
    assert moment_of(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "2026-11-25T12:00:00",
        "2026-11-25",
        True,
        -1,
        float("nan"),
        float("inf"),
        10**30,
        [],
        {},
        "1e5",
    ],
)
def test_nonsense_is_no_deadline(value: Any) -> None:
    """Each is refused in words that show it."""
    with pytest.raises(ValueError, match=r"is neither ISO 8601 with a time zone nor|has no time zone"):
        moment_of(value)


def _declared(expires: str) -> str:
    return BASE.replace("topic: orders,", f"topic: orders, expires: {expires},")


@pytest.mark.parametrize(
    ("expires", "after", "deadline", "bury"),
    [
        ("10m", timedelta(minutes=10), None, False),
        ("headers.deadline", None, "headers.deadline", False),
        ("{after: 1h, deadline: body.until, then: dead_letter}", timedelta(hours=1), "body.until", True),
    ],
)
def test_it_is_declared_in_short_and_in_full(
    tmp_path: Path, expires: str, after: timedelta | None, deadline: str | None, *, bury: bool
) -> None:
    """A duration, an expression, or both with what becomes of the message."""
    last = loaded(tmp_path, _declared(expires)).plan.consumers[0].strategies[-1]
    found = vars(last)
    assert (found["_after"], found["_deadline"] is not None, found["_bury"]) == (
        after,
        deadline is not None,
        bury,
    )


@pytest.mark.parametrize(
    ("expires", "text"),
    [
        ("10", "10 has no unit"),
        ("10 parsecs", "10 parsecs"),
        ("{}", "names no time"),
        ("{then: ignore}", "names no time"),
        ("{after: 0s}", "a duration"),
        ("{deadline: hedders.x}", "hedders"),
        ('"body.["', "the deadline is not usable"),
        ("{after: 1m, then: drop}", "write ignore or dead_letter"),
        ("{afer: 1m, deadline: body.x}", "did you mean 'after'?"),
        ("[10m]", "should be a mapping"),
    ],
)
def test_a_wrong_declaration_is_refused_in_words(tmp_path: Path, expires: str, text: str) -> None:
    """The words name the mistake."""
    assert any(text in line for line in problems(tmp_path, _declared(expires)))
