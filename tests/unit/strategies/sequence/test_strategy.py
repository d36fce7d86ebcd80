"""`sequence`: numbers in their order; what happens at their beginning, in a gap, and to messages without one."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.strategy import Scope
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.ledger.records import history
from oncemq.message.envelope import Message
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq_strategies.sequence.strategy import SequenceStrategy

MakeBench = Callable[..., Bench]
LATE = timedelta(minutes=11)


def sent(n: Any, **fields: Any) -> Message:
    """Return a message of key `a`; its number stands in `seq`, too, unless told otherwise."""
    return Message("suite", json.dumps({"id": "a", "n": n, "to": "s1", "seq": n, **fields}).encode())


def report(bench: Bench, key: str = "a") -> dict[str, str]:
    """Return what `oncemq inspect` shows."""
    with bench.engine.connect() as connection:
        return dict(bench.strategies[0].inspect(connection, key))


def test_old_numbers_are_stale_and_the_last_one_is_a_duplicate(make_bench: MakeBench) -> None:
    """What was applied last can be told apart from what is merely old."""
    bench = make_bench("sequence", {})
    assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.PROCEED] * 2
    assert bench.deliver(message("a", 2), message("a", 1)) == [Outcome.DUPLICATE, Outcome.STALE]
    assert bench.effects() == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("number", [None, "x", 1.5, True, 2**63], ids=str)
def test_a_message_without_a_number_is_rejected(make_bench: MakeBench, number: Any) -> None:
    """The reason names the key and says what is wrong with the number."""
    bench = make_bench("sequence", {"order": "body.seq"})
    (verdict,) = bench.verdicts(sent(1, seq=number))
    assert verdict.outcome is Outcome.REJECT
    assert "key 'a'" in verdict.reason
    assert "number" in verdict.reason


def test_a_sequence_may_begin_anywhere(make_bench: MakeBench) -> None:
    """`first: 5` refuses what lies before it; `first: any` begins with what comes first."""
    bench = make_bench("sequence", {"first": 5})
    assert bench.deliver(message("a", 4), message("a", 5), message("a", 6)) == [
        Outcome.REJECT,
        Outcome.PROCEED,
        Outcome.PROCEED,
    ]
    bench = make_bench("sequence", {"first": "any"})
    assert bench.deliver(message("a", 4), message("a", 6), message("a", 3)) == [
        Outcome.PROCEED,
        Outcome.PARKED,
        Outcome.STALE,
    ]


@pytest.mark.parametrize(("early", "outcome"), [("retry", Outcome.WAIT), ("reject", Outcome.REJECT)])
def test_an_early_message_need_not_be_parked(make_bench: MakeBench, early: str, outcome: Outcome) -> None:
    """`early: retry` and `early: reject` leave nothing behind."""
    bench = make_bench("sequence", {"early": early})
    assert bench.deliver(message("a", 2)) == [outcome]
    assert bench.traces() == 0


def test_the_room_of_a_key_is_limited(make_bench: MakeBench) -> None:
    """The broker keeps one message more than `park_limit`; other keys have room of their own, and the next one runs."""
    bench = make_bench("sequence", {"park_limit": 2})
    unit = [message("a", 2), message("a", 3), message("a", 4), message("b", 2)]
    assert bench.deliver(*unit) == [Outcome.PARKED, Outcome.PARKED, Outcome.WAIT, Outcome.PARKED]
    bench.deliver(message("a", 1))
    assert bench.effects() == [("a", 1), ("a", 2), ("a", 3)]


def test_a_gap_that_lasts_raises_an_alarm_and_waits_on(make_bench: MakeBench) -> None:
    """`on_gap: alert`: nothing is lost, nothing is skipped, and it is said aloud what is missing."""
    clock = FakeClock()
    bench = make_bench("sequence", {}, clock=clock)
    bench.deliver(message("a", 3))
    bench.sweep()
    assert bench.followed == []
    clock.advance(LATE)
    with capture_logs() as logs:
        bench.sweep()
    assert bench.followed == [Outcome.PARKED]
    (line,) = [line for line in logs if line["event"] == "sequence gap"]
    assert "numbers 1 to 2 have not all come" in line["detail"]
    bench.deliver(message("a", 1), message("a", 2))
    assert bench.effects() == [("a", 1), ("a", 2), ("a", 3)]


def test_a_gap_that_lasts_may_dead_letter_what_waits(make_bench: MakeBench) -> None:
    """`on_gap: dead_letter`: after the time-out, with a reason that names the missing number."""
    clock = FakeClock()
    bench = make_bench("sequence", {"on_gap": "dead_letter", "gap_timeout": "1m"}, clock=clock)
    bench.deliver(message("a", 2))
    clock.advance(timedelta(seconds=59))
    bench.sweep()
    assert bench.followed == []
    clock.advance(timedelta(seconds=2))
    bench.sweep()
    assert bench.followed == [Outcome.REJECT]


def test_a_gap_that_lasts_may_be_skipped(make_bench: MakeBench) -> None:
    """`on_gap: skip`: the lowest that waits runs, what follows it too, the history says what was given up."""
    clock = FakeClock()
    bench = make_bench("sequence", {"on_gap": "skip"}, clock=clock)
    bench.deliver(message("a", 1), message("a", 6), message("a", 4), message("a", 3))
    clock.advance(LATE)
    bench.sweep()
    assert bench.effects() == [("a", 1), ("a", 3), ("a", 4)]
    bench.sweep()
    assert bench.deliver(message("a", 2)) == [Outcome.STALE]
    with bench.engine.connect() as connection:
        rows = [
            row
            for row in history.of_key(connection, "a")
            if row.outcome == "gap" and row.consumer == bench.scope
        ]
    assert rows[0].reason.startswith("number 2 has not come")


def test_people_are_told_what_is_missing_and_what_waits(make_bench: MakeBench) -> None:
    """The next number, the gaps, and what is parked; nothing about keys that no one knows."""
    bench = make_bench("sequence", {})
    bench.deliver(*(message("a", number) for number in (1, 2, 4, 5, 9)))
    assert report(bench) == {
        "last number": "2",
        "next number": "3",
        "waiting": "4–5, 9",
        "missing": "3, 6–8",
    }
    assert report(bench, "b") == {}


REFUSED = [
    ({"park_limit": 0}, "no place to wait"),
    ({"gap_timeout": "0s"}, "zero|above|any time"),
    ({"early": "retry", "on_gap": "skip"}, "nothing can be skipped"),
    ({"on_gap": "ignore"}, "not possible"),
    ({"first": "one"}, "whole number"),
    ({"orders": "body.n"}, "did you mean 'order'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=str)
def test_options_that_cannot_work_are_refused(scope: Scope, options: dict[str, Any], words: str) -> None:
    """In words that say what to write."""
    with pytest.raises(ConfigError, match=words):
        SequenceStrategy.build(options, scope)


def test_check_wants_a_number_and_a_database(scope: Scope, facts: Callable[..., ConsumerFacts]) -> None:
    """A consumer without version, or with effects outside, is refused."""
    strategy = SequenceStrategy.build({}, scope)
    assert "order: body" in str(next(iter(strategy.check(facts()))))
    assert not list(strategy.check(facts(has_version=True)))
    assert "outside" in str(next(iter(strategy.check(facts(has_version=True, effects=Effects.EXTERNAL)))))
