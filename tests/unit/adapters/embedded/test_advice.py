"""What `check` says about consumers of an embedded broker."""

from datetime import timedelta

from oncemq.common.problems import Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from support.brokers.embedded_broker import build

SECOND = timedelta(seconds=1)


def facts(**changes: object) -> ConsumerFacts:
    """Return the facts of an ordinary consumer."""
    values: dict[str, object] = {
        "app": "a", "name": "c", "topic": "t", "group": "g", "effects": Effects.DATABASE, "broker": "b",
        "strategies": ("unique_key",), "identity": (), "has_version": False, "keep": 7 * 86400 * SECOND,
        "retry_horizon": SECOND, "attempts": 6, "is_async": False, "dialect": "sqlite", "workers": 1,
        "in_flight": 1000, "unit_time": timedelta(milliseconds=50), "soft_limit": None, "hard_limit": None,
    }  # fmt: skip
    return ConsumerFacts(**{**values, **changes})  # type: ignore[arg-type]


def test_a_file_is_no_problem():
    """An ordinary consumer on a file is fine."""
    assert list(build("embedded:///x.db").check(facts())) == []


def test_memory_is_a_warning():
    """In memory other processes see nothing: said, not refused."""
    (problem,) = build("embedded://").check(facts())
    assert problem.severity is Severity.WARNING
    assert "--processes" in problem.text


def test_lease_below_the_time_limit_is_refused():
    """A unit that may outlast its lease cannot be safe."""
    adapter = build("embedded:///x.db", lease="30s")
    (problem,) = adapter.check(facts(hard_limit=60 * SECOND))
    assert problem.severity is Severity.ERROR
    assert "30s" in problem.text
    assert list(adapter.check(facts(hard_limit=20 * SECOND))) == []


def test_options_of_other_brokers_are_named():
    """An option that means nothing here is said to be ignored."""
    (problem,) = build("embedded:///x.db").check(facts(options={"queue": "orders"}))
    assert problem.severity is Severity.WARNING
    assert "'queue'" in problem.text
