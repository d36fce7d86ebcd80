"""Tests of retry rules by the exception's class: which of them is asked."""

from typing import Any

import pytest

from oncemq import Retry
from oncemq.retry.backoff import RetryPolicy

ARITHMETIC, ZERO, TIMEOUT, ANY = (RetryPolicy(attempts=number) for number in (2, 3, 4, 5))
POLICY = RetryPolicy(
    by_error=(
        (Exception, ANY),
        (ZeroDivisionError, ZERO),
        (ArithmeticError, ARITHMETIC),
        (TimeoutError, TIMEOUT),
    )
)


class Odd(Exception):
    """Raises from its attributes, and says that it is something else."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return ZeroDivisionError
        raise RuntimeError(name)


def caused(outer: BaseException, inner: BaseException) -> BaseException:
    """Return `outer`, raised from `inner`."""
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (OverflowError(), ARITHMETIC),
        (ZeroDivisionError(), ZERO),
        (ValueError(), ANY),
        (caused(ValueError(), TimeoutError()), TIMEOUT),
        (caused(ValueError(), caused(KeyError(), ZeroDivisionError())), ZERO),
        (ExceptionGroup("several", [ValueError(), ExceptionGroup("more", [TimeoutError()])]), TIMEOUT),
        (KeyboardInterrupt(), POLICY),
        (caused(Retry("later"), TimeoutError()), POLICY),
        (Odd(), ANY),
        (None, POLICY),
    ],
    ids=[
        "subclass",
        "most specific",
        "general",
        "cause",
        "deep cause",
        "group",
        "no rule",
        "signal",
        "odd",
        "no error",
    ],
)
def test_the_most_specific_class_wins(error: BaseException | None, policy: RetryPolicy) -> None:
    """Subclasses count, and so do causes and the members of groups; a signal of the handler follows the plain policy."""
    assert POLICY.for_error(error) is policy


def test_an_error_that_causes_itself_is_examined_once() -> None:
    """A chain of causes may be a circle."""
    error = ValueError()
    error.__cause__ = caused(KeyError(), error)
    assert POLICY.for_error(error) is ANY


def test_an_error_that_was_raised_on_purpose_from_nothing_has_no_cause() -> None:
    """`raise … from None` hides what was handled."""
    hidden = ValueError()
    hidden.__context__, hidden.__suppress_context__ = TimeoutError(), True
    assert POLICY.for_error(hidden) is ANY


def test_limits_are_those_of_the_error_that_is_retried_longest() -> None:
    """Checks of records and brokers use the longest horizon, the longest pause and the most attempts."""
    longer = RetryPolicy(attempts=20)
    policy = RetryPolicy(by_error=((TimeoutError, longer),))
    assert (policy.horizon(), policy.longest_pause()) == (longer.horizon(), longer.longest_pause())
    assert policy.most_attempts == 20
