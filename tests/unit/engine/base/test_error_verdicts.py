"""What an exception means for the message whose handler raised it."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oncemq.common.error_text import MAX_ERROR_TEXT
from oncemq.contracts.verdict import Outcome
from oncemq.engine.base.error_verdicts import describe, is_infrastructure, judge
from oncemq.errors import InfrastructureError, InvalidPayload, Reject, Retry


def test_reject_is_dead_lettered_with_its_reason() -> None:
    """`raise Reject("why")` says why."""
    verdict = judge(Reject("sold out"))
    assert (verdict.outcome, verdict.reason, verdict.code) == (Outcome.REJECT, "sold out", "rejected")


def test_reject_without_words_has_a_reason() -> None:
    """A bare `raise Reject` still says where it came from."""
    assert judge(Reject()).reason == "rejected by the handler"


def test_an_invalid_payload_is_dead_lettered_as_such() -> None:
    """A payload that is not what the annotation says keeps its own code."""
    verdict = judge(InvalidPayload("amount: not a number"))
    assert (verdict.outcome, verdict.code) == (Outcome.REJECT, "invalid")


def test_retry_keeps_its_delay() -> None:
    """`raise Retry(after=…)` is redelivered after that."""
    verdict = judge(Retry("later", after=timedelta(minutes=3)))
    assert (verdict.outcome, verdict.delay) == (Outcome.RETRY, timedelta(minutes=3))


@pytest.mark.parametrize(
    ("after", "delay"),
    [
        (1, timedelta(seconds=1)),
        (1.5, timedelta(milliseconds=1500)),
        ("5m", timedelta(minutes=5)),
        (0, timedelta(0)),
        (None, None),
    ],
)
def test_retry_takes_seconds_and_words(after: Any, delay: timedelta | None) -> None:
    """A delay is written as people write it."""
    assert judge(Retry(after=after)).delay == delay


@pytest.mark.parametrize(
    ("after", "error"),
    [
        (-1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (10**400, ValueError),
        (timedelta(seconds=-1), ValueError),
        (timedelta.max, ValueError),
        ("soon", ValueError),
        (True, TypeError),
        (b"5m", TypeError),
        ([5], TypeError),
    ],
)
def test_retry_refuses_any_other_delay_where_it_is_raised(after: Any, error: type[Exception]) -> None:
    """So the error is the handler's, with its own place."""
    with pytest.raises(error):
        Retry(after=after)


def test_a_delay_that_was_set_past_the_constructor_is_the_messages_failure() -> None:
    """A subclass may set anything; that costs an attempt and says why."""
    signal = Retry("later")
    signal.after = float("nan")  # type: ignore[assignment]
    verdict = judge(signal)
    assert (verdict.outcome, verdict.delay) == (Outcome.RETRY, None)
    assert "is not a number of seconds" in verdict.reason


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), TimeoutError()])
def test_any_other_exception_follows_the_retry_policy(error: BaseException) -> None:
    """Whatever else is raised costs an attempt, and is kept."""
    verdict = judge(error)
    assert (verdict.outcome, verdict.delay, verdict.error) == (Outcome.RETRY, None, error)


def test_a_description_is_one_line_of_class_and_text() -> None:
    """The driver's own words say more than the wrapper's."""
    assert (
        describe(IntegrityError("INSERT …", {}, ValueError("duplicate key")))
        == "IntegrityError: duplicate key"
    )


def test_a_description_without_text_is_the_class() -> None:
    """An exception without words is named."""
    assert describe(KeyError()) == "KeyError"


def test_a_description_fits_into_a_header() -> None:
    """Brokers limit the size of headers."""
    assert len(describe(ValueError("x" * 100_000))) == MAX_ERROR_TEXT


@pytest.mark.parametrize(
    "error",
    [
        InfrastructureError("away"),
        PoolTimeout("no free connection"),
        OperationalError("SELECT 1", {}, Exception(), connection_invalidated=True),
    ],
)
def test_the_databases_trouble_is_no_messages_fault(error: Exception) -> None:
    """Lost connections and busy pools are infrastructure."""
    assert is_infrastructure(error)


@pytest.mark.parametrize("error", [ValueError(), IntegrityError("INSERT", {}, ValueError()), TimeoutError()])
def test_other_errors_are_not_infrastructure(error: Exception) -> None:
    """The message's own values and the handler's own trouble are theirs."""
    assert not is_infrastructure(error)
