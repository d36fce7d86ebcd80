"""Messages that wait for a state or a version that does not come: no one forgets them, whatever was chosen."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from oncemq.contracts.strategy import Scope
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.message.envelope import Message
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.strategy_suite.bench import Bench
from oncemq.testing.strategy_suite.parking import waiting
from oncemq_strategies.optimistic_lock.strategy import OptimisticLock
from oncemq_strategies.state_machine.strategy import StateMachine
from support.database import rides
from support.database.rides import add_point

MakeBench = Callable[..., Bench]

MINUTE = timedelta(minutes=1)
STATES = ["created", "paid", "shipped", "received"]
CHAINS: Mapping[str, Mapping[str, Any]] = {
    "state_machine": {"to": "body.to", "states": STATES, "early": "park"},
    "optimistic_lock": {
        "entity": {"table": "rides", "key": "ride_id", "version": "version"},
        "early": "park",
    },
}


@pytest.fixture(params=sorted(CHAINS))
def name(request: pytest.FixtureRequest, database_url: str) -> str:
    """One strategy after the other, with the table that one of them needs."""
    rides.create(database_url)
    return str(request.param)


def event(ride: int, number: int) -> Message:
    """Return a message that is the `number`-th of its ride."""
    return Message("rides", json.dumps({"id": ride, "n": number, "to": STATES[number - 1]}).encode())


def bench_of(make_bench: MakeBench, name: str, **options: Any) -> tuple[Bench, FakeClock]:
    """Return a bench for one strategy, and its clock."""
    clock = FakeClock()
    handler = add_point if name == "optimistic_lock" else None
    return make_bench(name, {**CHAINS[name], **options}, clock=clock, handler=handler), clock


def look(bench: Bench, clock: FakeClock, minutes: int) -> list[Mapping[str, Any]]:
    """Let minutes pass, with a sweep after each as a process makes them; return the warnings."""
    with capture_logs() as logs:
        for _ in range(minutes):
            clock.advance(MINUTE)
            bench.sweep()
    return [line for line in logs if line["event"].endswith(" gap")]


def test_a_wait_without_success_is_logged(make_bench: MakeBench, name: str) -> None:
    """Not before `gap_timeout`, and then once for each key and time-out, although looked at each minute."""
    bench, clock = bench_of(make_bench, name)
    assert bench.deliver(event(1, 3), event(1, 4), event(2, 2)) == [Outcome.PARKED] * 3
    assert look(bench, clock, 9) == []
    warned = look(bench, clock, 1)
    assert [(line["event"], line["key"]) for line in warned] == [(f"{name} gap", "1"), (f"{name} gap", "2")]
    assert "came early" in warned[0]["detail"]
    assert look(bench, clock, 9) == []
    assert len(look(bench, clock, 1)) == 2
    assert set(bench.followed) == {Outcome.PARKED}


def test_a_warning_loses_nothing(make_bench: MakeBench, name: str) -> None:
    """What waits long after the time-out still runs when its turn has come, in order."""
    bench, clock = bench_of(make_bench, name)
    bench.deliver(event(1, 3), event(1, 2))
    look(bench, clock, 45)
    bench.followed.clear()
    assert bench.deliver(event(1, 1)) == [Outcome.PROCEED]
    assert bench.followed.count(Outcome.PROCEED) == 2
    assert waiting(bench) == 0


def test_a_message_that_waits_too_long_may_become_a_dead_letter(make_bench: MakeBench, name: str) -> None:
    """`on_gap: dead_letter`: each after its own time, with a reason that names what it waited for."""
    bench, clock = bench_of(make_bench, name, on_gap="dead_letter", gap_timeout="90s")
    bench.deliver(event(1, 3))
    look(bench, clock, 1)
    bench.deliver(event(1, 4))
    assert bench.followed == [Outcome.PARKED]
    clock.advance(timedelta(seconds=30))
    bench.sweep()
    assert bench.followed == [Outcome.PARKED, Outcome.REJECT]
    verdict = bench.follow_ups[-1]
    assert (verdict.code, "came early" in verdict.reason) == ("gap", True)
    assert "waited for 1.5m" in verdict.reason


def test_what_comes_in_time_is_no_gap(make_bench: MakeBench, name: str) -> None:
    """It runs when its turn has come, and a copy of it is a duplicate: nothing is left of its waiting."""
    bench, clock = bench_of(make_bench, name, on_gap="dead_letter")
    bench.deliver(event(1, 2))
    assert look(bench, clock, 9) == []
    bench.followed.clear()
    assert bench.deliver(event(1, 1)) == [Outcome.PROCEED]
    assert bench.followed == [Outcome.PROCEED]
    assert bench.deliver(event(1, 2)) == [Outcome.DUPLICATE]


def state_machine(**options: Any) -> tuple[type[StateMachine], dict[str, Any]]:
    """Return a case of refused options."""
    return StateMachine, {**CHAINS["state_machine"], **options}


def optimistic(**options: Any) -> tuple[type[OptimisticLock], dict[str, Any]]:
    """Return a case of refused options."""
    return OptimisticLock, {**CHAINS["optimistic_lock"], **options}


WAYS = {"states": None, "transitions": {"created": ["paid"], "paid": ["shipped"]}}
REFUSED = [
    (*state_machine(on_gap="skip"), r"state_machine.on_gap.*nothing can be skipped.*`early: run`"),
    (*state_machine(**WAYS, on_gap="skip"), r"nothing can be skipped.*`transitions`"),
    (*optimistic(on_gap="skip"), r"optimistic_lock.on_gap.*nothing can be skipped.*`early: run`"),
    (*optimistic(on_gap="skip", message_version="current"), r"skipped here.*`on_gap: dead_letter`"),
    (*state_machine(early="run", on_gap="alert"), r"state_machine.on_gap.*nothing waits"),
    (*optimistic(early="reject", gap_timeout="5m"), r"optimistic_lock.gap_timeout.*nothing waits"),
    (*state_machine(gap_timeout="0s"), r"longer than zero"),
    (*optimistic(on_gap="dead-letter"), r"did you mean 'dead_letter'"),
]


@pytest.mark.parametrize(("strategy", "options", "words"), REFUSED)
def test_options_that_cannot_work_are_refused(
    scope: Scope, strategy: Any, options: Mapping[str, Any], words: str
) -> None:
    """In words that say what to write instead: no way but the user's leads past a state or a version."""
    given = {name: value for name, value in options.items() if value is not None}
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        strategy.build(given, scope)
