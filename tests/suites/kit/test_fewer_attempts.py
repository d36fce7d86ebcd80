"""A producer that asks for fewer attempts of one message: `retry: {attempts_from: headers.attempts}`."""

from typing import Any

import pytest

from oncemq.testing import TestApp
from suites.kit.conftest import RETRY, Bench, effects

BROKEN = ValueError("broken")


def _start(bench: Bench, **retry: Any) -> tuple[TestApp, str]:
    topic = bench.topic()
    bench.consume(topic, bench.apply, name="apply", retry=RETRY | retry)
    bench.failures = [BROKEN] * 10
    return bench.start(), topic


def _failed_after(bench: Bench, said: str, **retry: Any) -> int:
    """Return after how many attempts a message became a dead letter whose producer said this."""
    app, topic = _start(bench, **retry)
    outcome = app.publish(topic, {"id": "a", "key": "k"}, headers={"attempts": said})
    app.clock.advance("3s")
    assert outcome.code == "attempts-exhausted"
    assert effects(app) == []
    return 10 - len(bench.failures)


@pytest.mark.parametrize(("said", "tried"), [("1", 1), ("2", 2), ("1000000", 3)])
def test_a_producer_may_ask_for_fewer(bench: Bench, said: str, tried: int) -> None:
    """The consumer's own limit is the most."""
    assert _failed_after(bench, said, attempts_from="headers.attempts") == tried


def test_producers_have_no_say_unless_that_is_allowed(bench: Bench) -> None:
    """A header that every producer can write changes nothing by itself."""
    assert _failed_after(bench, "1") == 3


def test_a_rule_by_exception_is_the_limit_of_its_errors(bench: Bench) -> None:
    """It also bounds what may be asked for."""
    rule = {"errors": {ValueError: {"attempts": 2}}}
    assert _failed_after(bench, "3", attempts_from="headers.attempts", **rule) == 2
