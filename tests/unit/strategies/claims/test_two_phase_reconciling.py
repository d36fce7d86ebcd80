"""`two_phase` asks about abandoned claims; `check` refuses options that cannot work."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from oncemq import Done, Envelope, NotDone, Unknown
from oncemq.common.clock import SystemClock
from oncemq.common.problems import Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.ledger.records import claims
from oncemq.message.stored import to_text
from oncemq.testing.strategy_suite.bench import Bench
from oncemq_strategies.claims.two_phase import TwoPhase
from support.benches.two_phase import MakeDirect, change, envelope, fail_once, make_direct, only, rows

__all__ = ["make_direct"]


# Reconciling


def strategy_of(bench: Bench) -> TwoPhase:
    """Return the bench's strategy."""
    (strategy,) = bench.strategies
    assert isinstance(strategy, TwoPhase)
    return strategy


@pytest.mark.parametrize(
    ("answer", "told", "left"),
    [
        (Done(), "done", ["done"]),
        (NotDone(), "not done", []),
        (Unknown("?"), "unknown", ["unknown"]),
        (7, "unanswered", ["unknown"]),
    ],
)
def test_reconciling_asks_about_abandoned_claims(
    make_direct: MakeDirect, answer: Any, told: str, left: list[str]
) -> None:
    """Done is done, what is not done may run when it comes, the others stay in doubt."""
    bench = make_direct(verify=lambda _envelope: answer)
    fail_once(bench)
    (found,) = strategy_of(bench).reconcile(bench.engine)
    assert (found.identity, found.answer) == ("a:1", told)
    assert [row.state for row in rows(bench)] == left


def test_reconciling_leaves_living_claims_alone(make_direct: MakeDirect) -> None:
    """Also when a person names one."""
    bench = make_direct(verify=lambda _envelope: Done())
    fail_once(bench)
    change(bench, state="processing", holder="another", until=SystemClock().now() + timedelta(minutes=1))
    assert list(strategy_of(bench).reconcile(bench.engine)) == []
    (found,) = strategy_of(bench).reconcile(bench.engine, identity="a:1", answer=NotDone())
    assert found.answer == "busy"
    assert [row.state for row in rows(bench)] == ["processing"]


def test_a_person_may_know_better(make_direct: MakeDirect) -> None:
    """Without any `verify`, one message is settled as told."""
    bench = make_direct()
    fail_once(bench)
    (found,) = strategy_of(bench).reconcile(bench.engine, identity="a:1", answer=NotDone())
    assert found.answer == "not done"
    assert only(bench).outcome is Outcome.PROCEED


def test_the_background_asks_once_in_a_while(make_direct: MakeDirect) -> None:
    """What remained unknown is not asked about at every look."""
    asked: list[str] = []

    def verify(envelope: Envelope) -> Unknown:
        asked.append(envelope.identity)
        return Unknown()

    bench = make_direct(verify=verify)
    fail_once(bench)
    (task,) = strategy_of(bench).upkeep()
    for _ in range(3):
        assert task.run(bench.engine) is False
    assert asked == ["a:1"]


def test_many_stuck_claims_are_all_asked_about(make_direct: MakeDirect) -> None:
    """More than one step's worth."""
    bench = make_direct(verify=lambda _envelope: Unknown())
    with bench.engine.begin() as connection:
        row = {
            "consumer": bench.scope,
            "key": "k",
            "state": "unknown",
            "holder": "",
            "envelope": to_text(envelope()),
        }
        until = SystemClock().now()
        connection.execute(
            insert(claims.TABLE), [{**row, "identity": f"{n:03}", "until": until} for n in range(50)]
        )
    assert len(list(strategy_of(bench).reconcile(bench.engine))) == 50


# Configuration


def problems(
    facts: Callable[..., ConsumerFacts], scope: Any, options: dict[str, Any], **exceptions: Any
) -> list[tuple[Severity, str]]:
    """Return what `check` says."""
    outside = {"effects": Effects.EXTERNAL, "strategies": ("two_phase",), **exceptions}
    strategy = TwoPhase.build(options, scope)
    return [(finding.severity, finding.text) for finding in strategy.check(facts(**outside))]


def test_a_sound_consumer_has_no_problems(facts: Any, scope: Any) -> None:
    """With `verify` and a database nothing is said."""
    assert problems(facts, scope, {"verify": print}) == []


def test_check_says_what_a_missing_verify_means(facts: Any, scope: Any) -> None:
    """It is allowed, since it is safe, but at every start someone is told."""
    ((severity, text),) = problems(facts, scope, {})
    assert severity is Severity.WARNING
    assert "not tried again but becomes a dead letter" in text


def test_check_needs_a_database(facts: Any, scope: Any) -> None:
    """Claims must be kept somewhere."""
    ((severity, text),) = problems(facts, scope, {"verify": print}, dialect="")
    assert severity is Severity.ERROR
    assert "database" in text


def test_check_warns_of_a_lease_that_makes_messages_wait(facts: Any, scope: Any) -> None:
    """A lease need not be as long as a handler may run."""
    ((severity, text),) = problems(facts, scope, {"verify": print, "lease": "2h"})
    assert severity is Severity.WARNING
    assert "2h" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"verfy": "x:y"}, "did you mean 'verify'"),
        ({"verify": 5}, "5 is not a function"),
        ({"lease": "100ms"}, "before it can be renewed"),
        ({"lease": "soon"}, "soon"),
        ({"fingerprint": ["body."]}, "body."),
    ],
)
def test_options_that_cannot_work_are_refused(scope: Any, options: dict[str, Any], text: str) -> None:
    """Each with words that help."""
    with pytest.raises(ConfigError) as refused:
        TwoPhase.build(options, scope)
    assert text in str(refused.value)
