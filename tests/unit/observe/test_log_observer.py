"""The lines that an operator reads."""

from datetime import timedelta

import pytest
from structlog.testing import CapturingLogger

from oncemq.common.durations import parse_duration
from oncemq.contracts.verdict import Outcome
from oncemq.errors import Reject
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.observe.events import TimeLimit
from oncemq.observe.log_observer import LogObserver, spaced
from oncemq.observe.state import PauseReason
from oncemq.testing.fake_clock import FakeClock


@pytest.fixture
def log():
    """Return a logger that writes down its calls."""
    return CapturingLogger()


@pytest.fixture
def observer(log):
    """Return the observer under test."""
    return LogObserver(log)


def delivery(*, refused=False):
    """Return a delivery at its third try; a refused one was never understood."""
    found = Delivery(Message("order.paid", b"secret body", message_id="m-1", attempt=3))
    if not refused:
        found.envelope = Envelope(
            "shop", "order.paid", "loyalty", "order-1", None, "order-1:7", "m-1", 3, {}, b"secret body", None
        )
    return found


def raised(error):
    """Return an error that has been raised, so that it knows where."""
    try:
        raise error
    except type(error) as caught:
        return caught


ABOUT = {"consumer": "award", "topic": "order.paid", "key": "order-1", "identity": "order-1:7", "attempt": 3}


def test_a_retry_says_when_it_comes_next(observer, log):
    """A retried message is one warning with the pause, the cause and the place in the handler."""
    observer.retried("award", delivery(), next_in=timedelta(seconds=8.1), error=raised(KeyError("user")))
    (call,) = log.calls
    assert (call.method_name, call.args) == ("warning", ("message failed, will be retried",))
    place = call.kwargs.pop("at")
    assert isinstance(call.kwargs.pop("exc_info"), KeyError)
    assert call.kwargs == {**ABOUT, "next": "next in 8.1 s", "error": "KeyError: 'user'"}
    assert place.startswith("test_log_observer.py:")
    assert place.endswith(" in raised")


def test_a_dead_letter_of_an_unexpected_error_has_its_traceback(observer, log):
    """The handler's own error is shown in full once, when its message is given up."""
    error = raised(KeyError("user"))
    observer.dead_lettered("award", delivery(), code="exhausted", reason="6 attempts", error=error)
    (call,) = log.calls
    assert call.method_name == "error"
    assert call.kwargs["exc_info"] is error
    assert (call.kwargs["code"], call.kwargs["reason"]) == ("exhausted", "6 attempts")


def test_the_same_error_is_shown_in_full_once_a_minute(log):
    """Thousands of dead letters of one cause are thousands of lines, not thousands of tracebacks."""
    clock = FakeClock()
    observer = LogObserver(log, clock)
    error = raised(KeyError("user"))
    for pause in (0, 59, 1):
        clock.advance(timedelta(seconds=pause))
        observer.dead_lettered("award", delivery(), code="exhausted", error=error)
    assert ["exc_info" in call.kwargs for call in log.calls] == [True, False, True]


def test_repeated_failures_are_one_line_with_a_count(observer, log):
    """The first failed try shows its traceback, those after it how often that error was seen, in whatever message."""
    error = raised(KeyError("user"))
    for _ in range(2):
        observer.retried("award", delivery(), next_in=timedelta(seconds=1), error=error)
    observer.dead_lettered("award", delivery(), code="attempts-exhausted", error=error)
    assert [("exc_info" in call.kwargs, call.kwargs.get("same_error")) for call in log.calls] == [
        (True, None),
        (False, 2),
        (False, 3),
    ]


def test_another_error_is_shown_in_full_at_once(observer, log):
    """What is new is never hidden behind what is known."""
    for error in (KeyError("user"), ValueError("user")):
        observer.dead_lettered("award", delivery(), code="exhausted", error=raised(error))
    assert all("exc_info" in call.kwargs for call in log.calls)


def test_a_place_inside_the_framework_is_not_shown(observer, log):
    """A line number in our code would send the reader to the wrong file."""
    try:
        parse_duration("soon")
    except ValueError as error:
        observer.dead_lettered("award", delivery(), code="rejected", error=error)
    (call,) = log.calls
    assert call.kwargs["at"].startswith("test_log_observer.py:")


def test_a_reject_needs_no_traceback(observer, log):
    """What a handler decided on purpose is one plain line."""
    observer.dead_lettered("award", delivery(), code="rejected", error=raised(Reject("no such user")))
    (call,) = log.calls
    assert "exc_info" not in call.kwargs


def test_a_refused_message_is_named_by_its_id(observer, log):
    """Without key and identity the line says topic and message id."""
    observer.dead_lettered(
        "award", delivery(refused=True), code="no-key", reason="body.order_id found nothing"
    )
    (call,) = log.calls
    assert call.kwargs == {
        "consumer": "award",
        "topic": "order.paid",
        "message_id": "m-1",
        "attempt": 3,
        "code": "no-key",
        "reason": "body.order_id found nothing",
    }


def test_a_cause_is_said_once(observer, log):
    """A reason that only repeats the error is left out."""
    observer.retried(
        "award", delivery(), next_in=timedelta(1), reason="KeyError: 'user'", error=KeyError("user")
    )
    (call,) = log.calls
    assert "reason" not in call.kwargs
    assert call.kwargs["error"] == "KeyError: 'user'"


def test_applied_messages_write_no_line(observer, log):
    """A unit that went well is not news."""
    observer.unit_done("award", {Outcome.PROCEED: 500}, size=500, seconds=0.05)
    assert log.calls == []


def test_the_first_database_failure_in_a_row_is_not_news(observer, log):
    """A single deadlock is everyday life, the second try in a row is told."""
    for tries in (1, 2):
        observer.infrastructure_failed(
            "award", tries=tries, next_in=timedelta(seconds=1), error=OSError("gone")
        )
    (call,) = log.calls
    assert call.kwargs["tries"] == 2


@pytest.mark.parametrize("reason", list(PauseReason))
def test_every_pause_says_why_and_what_comes_next(observer, log, reason):
    """A paused consumer is one line, for each reason there is."""
    observer.consumer_paused("award", reason, retry_in=timedelta(seconds=5), error=OSError("gone"))
    (call,) = log.calls
    assert call.args[0].startswith("consumer paused")
    assert call.kwargs["next"] == "next in 5 s"


def test_a_breaker_says_what_it_found_and_what_it_does(observer, log):
    """The key stands in the log, and in no label."""
    found = {"action": "slow", "share": 0.41237, "above": 0.3, "messages": 900, "key": "order-7"}
    observer.breaker_changed("award", "hot_key", "open", **found, next_in=timedelta(seconds=30))
    observer.breaker_changed("award", "hot_key", "half-open", **found)
    observer.breaker_changed("award", "hot_key", "closed", **found)
    assert [call.args[0] for call in log.calls] == [
        "breaker opened",
        "breaker is half open",
        "breaker closed",
    ]
    assert log.calls[0].kwargs == {
        "consumer": "award",
        "breaker": "hot_key",
        "action": "slow",
        "share": 0.412,
        "above": 0.3,
        "messages": 900,
        "key": "order-7",
        "next": "next in 30 s",
    }


def test_everything_else_is_one_line_each(observer, log):
    """Each further thing that an operator should know writes exactly one line."""
    observer.consumer_started("award", "order.paid", workers=1)
    observer.consumer_resumed("award", after=timedelta(seconds=5))
    observer.stale("award", delivery(), reason="paid after shipped")
    observer.settle_failed("award", 3, OSError("gone"))
    observer.exclusive_units("award", on=True)
    observer.exclusive_units("award", on=False)
    observer.crash_suspect("award", key="k", identity="k:1", crashes=2)
    observer.time_limit("award", None, TimeLimit.HARD, timedelta(seconds=60))
    observer.time_limit("award", delivery(), TimeLimit.SOFT, timedelta(seconds=20))
    observer.connection_lost("shop", "award")
    observer.connection_resumed("shop", "award", after=timedelta(seconds=2))
    observer.warned("synchronous_commit is off")
    observer.failed("purge", OSError("gone"))
    observer.draining(timedelta(seconds=30))
    observer.drained(seconds=1.5, returned=3)
    observer.stopped(clean=True)
    assert [call.args[-1] for call in log.calls] == [
        "consumer started",
        "consumer resumed",
        "message is stale",
        "settlement failed, messages are redelivered",
        "units deadlocked, run one at a time",
        "units run concurrently again",
        "worker process died while this message ran, isolated from now on",
        "handler exceeded its hard time limit, process ends",
        "handler exceeded its soft time limit",
        "broker connection lost, reconnecting",
        "broker connection resumed",
        "synchronous_commit is off",
        "purge failed, nothing is lost",
        "draining, no new messages are accepted",
        "drained",
        "stopped",
    ]


def test_the_last_line_counts_the_outcomes(log):
    """The end of a run says what became of its messages, and how long it ran."""
    clock = FakeClock()
    observer = LogObserver(log, clock)
    counts = {Outcome.PROCEED: 3, Outcome.DUPLICATE: 2, Outcome.STALE: 1, Outcome.PARKED: 4, Outcome.RETRY: 1}
    observer.unit_done("award", counts, size=11, seconds=0.1)
    observer.unit_done("award", {Outcome.PROCEED: 2}, size=2, seconds=0.1)
    observer.retried("award", delivery(), next_in=timedelta(seconds=1))
    observer.dead_lettered("award", delivery(), code="rejected")
    clock.advance(timedelta(seconds=90))
    observer.stopped(clean=True)
    assert log.calls[-1].kwargs == {
        "applied": 5,
        "duplicates": 2,
        "stale": 1,
        "retried": 1,
        "parked": 4,
        "dead_letters": 1,
        "after": "1.5 m",
    }


def test_no_line_holds_a_body(observer, log):
    """Whatever happens to a message, its body is not in the line."""
    observer.retried("award", delivery(), next_in=timedelta(seconds=1))
    observer.stale("award", delivery(), reason="late")
    observer.dead_lettered("award", delivery(refused=True), code="undecodable")
    assert "secret body" not in repr(log.calls)


@pytest.mark.parametrize(("seconds", "text"), [(8.1, "8.1 s"), (0.25, "250 ms"), (600, "10 m")])
def test_durations_are_spaced_for_people(seconds, text):
    """Number and unit stand apart."""
    assert spaced(timedelta(seconds=seconds)) == text


def test_a_background_task_that_keeps_failing_is_said_once_a_minute(log):
    """One traceback for a cause, whatever fails by it; then a line a minute with the number of failures."""
    clock = FakeClock()
    observer = LogObserver(log, clock)
    for _ in range(100):
        observer.failed("the heartbeat", raised(OSError("gone")))
        observer.failed("purging", raised(OSError("gone")))
        clock.advance(timedelta(seconds=1))
    said = [(call.args[0].partition(" failed")[0], call.kwargs.get("times")) for call in log.calls]
    assert said == [("the heartbeat", None), ("purging", None), ("the heartbeat", 60), ("purging", 60)]
    assert ["exc_info" in call.kwargs for call in log.calls] == [True, False, False, False]


def test_a_pause_that_lasts_is_said_once_a_minute(log):
    """The next pause after a resumed one is a new one."""
    clock = FakeClock()
    observer = LogObserver(log, clock)
    for _ in range(14):
        observer.consumer_paused("award", PauseReason.DATABASE, retry_in=timedelta(seconds=5))
        clock.advance(timedelta(seconds=5))
    observer.consumer_resumed("award", after=timedelta(seconds=70))
    observer.consumer_paused("award", PauseReason.DATABASE, retry_in=timedelta(seconds=5))
    said = [(call.args[0].partition(":")[0], call.kwargs.get("times")) for call in log.calls]
    paused, resumed = "consumer paused", "consumer resumed"
    assert said == [(paused, None), (paused, 12), (resumed, None), (paused, None)]


def test_a_failure_of_long_ago_is_no_repetition(log):
    """After two quiet minutes it is told with its traceback again."""
    clock = FakeClock()
    observer = LogObserver(log, clock)
    for _ in range(2):
        observer.failed("purging", raised(OSError("gone")))
        clock.advance(timedelta(seconds=121))
    assert ["exc_info" in call.kwargs for call in log.calls] == [True, True]
