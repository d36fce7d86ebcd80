"""Tests of `rate:` as it is declared: short and long, inherited, refused and warned about."""

from pathlib import Path

import pytest

from oncemq.engine.rates.rule import RateRule
from support.declared import BASE, loaded, problems


def declared(rate: str, more: str = "", defaults: str = "") -> str:
    """Return an app with this rate."""
    text = BASE.replace("topic: orders,", f"topic: orders, rate: {rate}{more},")
    return text + defaults


@pytest.mark.parametrize(
    ("written", "rule", "in_flight"),
    [
        ("200/s", RateRule(200.0, None, shared=False, text="200/s"), 1000),
        ("30/m", RateRule(0.5, None, shared=False, text="30/m"), 5),
        ("1 / h", RateRule(1 / 3600, None, shared=False, text="1 / h"), 1),
        ("{limit: 2.5/s, burst: 40}", RateRule(2.5, 40, shared=False, text="2.5/s"), 40),
    ],
)
def test_a_rate_has_a_unit(tmp_path: Path, written: str, rule: RateRule, in_flight: int) -> None:
    """By default no more messages are held than pass in ten seconds, or in one burst."""
    (consumer,) = loaded(tmp_path, declared(written)).plan.consumers
    assert consumer.rate == rule
    assert consumer.subscription.in_flight == in_flight


def test_the_defaults_hold_for_consumers_without_a_rate(tmp_path: Path) -> None:
    """As of all options."""
    (consumer,) = loaded(tmp_path, BASE + "defaults: {rate: 5/s}\n").plan.consumers
    assert consumer.rate is not None
    assert consumer.rate.limit == 5.0


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("200", "200 has no unit – write 200/s, 200/m or 200/h"),
        ("0/s", "would let no message pass"),
        ("fast", "'fast' is not a rate – write 200/s, 30/m or 1000/h"),
        ("200/d", "'200/d' is not a rate"),
        ("{burst: 3}", "has no limit – write limit: 200/s"),
        ("{limit: 1/s, burst: 0}", "`rate`"),
        ("{limit: 1/s, bursts: 3}", "has the unknown name 'bursts' – known here: limit, burst, shared"),
        ("{limit: 1/s, shared: maybe}", "has a `shared` that is neither true nor false"),
        ("{limit: 1/s, shared: true}", "a shared rate is counted in the app's Redis, and there is none"),
    ],
)
def test_what_is_no_rate_is_refused(tmp_path: Path, written: str, said: str) -> None:
    """At its line, with what to write."""
    (problem,) = problems(tmp_path, declared(written))
    assert problem.startswith("app.yaml:7:")
    assert said in problem


def test_messages_that_would_be_held_too_long_are_warned_about(tmp_path: Path) -> None:
    """RabbitMQ takes them back after half an hour."""
    app = loaded(tmp_path, declared("30/m", ", in_flight: 1000"))
    (warning,) = [text for text in map(str, app.warnings) if "in_flight" in text]
    assert "in_flight: 1000 at 30/m are messages for 33.3m" in warning
    assert "write at most 300" in warning


def test_a_rate_below_the_brokers_time_out_is_warned_about(tmp_path: Path) -> None:
    """A smaller in_flight would not help: one message already waits too long."""
    app = loaded(tmp_path, declared("2/h"))
    (warning,) = [text for text in map(str, app.warnings) if "2/h" in text]
    assert "a message waits 30m for its turn" in warning
    assert "write at least 6/h" in warning
    assert not [text for text in map(str, loaded(tmp_path, declared("6/h")).warnings) if "6/h" in text]
