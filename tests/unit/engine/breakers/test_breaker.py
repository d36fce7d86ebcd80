"""A breaker opens for a share that is too large, tries again after a while, and closes when the share is right."""

from datetime import timedelta

import pytest

from oncemq.engine.breakers.breaker import Breaker, Phase
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.engine.breakers.windows import Totals


class Bench:
    """A breaker and its time, in seconds."""

    def __init__(self, kind: BreakerKind = BreakerKind.FAILURES, **fields: object) -> None:
        self.now = 1_000.0
        rule = BreakerRule(kind, **{"above": 0.5, **fields})  # type: ignore[arg-type]
        self.breaker = Breaker(rule, self.now)

    def after(self, seconds: float, messages: int = 0, *, bad: int = 0, key: str = "") -> Phase:
        """Let time pass, then messages come to an end; returns the phase."""
        self.now += seconds
        keys = [key] * bad + [f"{self.now}-{number}" for number in range(messages - bad)] if key else []
        self.breaker.count(Totals(messages, bad, bad), keys, self.now)
        self.breaker.look(self.now)
        return self.breaker.phase


@pytest.mark.parametrize("kind", [BreakerKind.DUPLICATES, BreakerKind.FAILURES])
def test_it_opens_above_its_share(kind: BreakerKind) -> None:
    """The share itself is still right."""
    bench = Bench(kind)
    assert bench.after(1, 100, bad=50) is Phase.CLOSED
    assert bench.after(1, 1, bad=1) is Phase.OPEN


def test_it_opens_when_nothing_ever_succeeded() -> None:
    """Failures alone are a share, too."""
    assert Bench().after(1, 100, bad=100) is Phase.OPEN


def test_few_messages_say_nothing() -> None:
    """Below `minimum` it does not judge."""
    bench = Bench(minimum=100)
    assert bench.after(1, 99, bad=99) is Phase.CLOSED
    assert bench.after(1, 1, bad=1) is Phase.OPEN


def test_old_failures_do_not_count() -> None:
    """Only the window is looked at."""
    bench = Bench(window=timedelta(seconds=10))
    assert bench.after(1, 99, bad=99) is Phase.CLOSED
    assert bench.after(11, 99, bad=40) is Phase.CLOSED


def test_a_hot_key_is_named() -> None:
    """The share is that of the most frequent key."""
    bench = Bench(BreakerKind.HOT_KEY)
    assert bench.after(1, 200, bad=150, key="order-7") is Phase.OPEN
    assert (bench.breaker.found.key, bench.breaker.found.share) == ("order-7", 0.75)


def test_it_tries_again_and_closes() -> None:
    """After `open_for` it is half open, and closed when enough messages were right."""
    bench = Bench(action=BreakerAction.PAUSE)
    assert bench.after(1, 100, bad=100) is Phase.OPEN
    assert bench.after(29) is Phase.OPEN
    assert bench.after(1) is Phase.HALF_OPEN
    assert bench.after(1, 9) is Phase.HALF_OPEN
    assert bench.after(1, 1) is Phase.CLOSED


def test_half_open_it_opens_again_for_longer() -> None:
    """Twice as long each time in a row, ten minutes at most; a success ends the row."""
    bench, lasted = Bench(action=BreakerAction.PAUSE), []
    bench.after(1, 100, bad=100)
    for _ in range(8):
        lasted.append(bench.breaker.open_until - bench.now)
        bench.after(lasted[-1])
        bench.after(0, 10, bad=10)
    assert lasted == [30, 60, 120, 240, 480, 600, 600, 600]
    bench.after(600)
    assert bench.after(0, 10) is Phase.CLOSED
    bench.after(100, 100, bad=100)
    assert bench.breaker.open_until - bench.now == 30


def test_what_came_while_it_was_open_is_not_judged() -> None:
    """Messages that were begun before do not open it again."""
    bench = Bench()
    bench.after(1, 100, bad=100)
    bench.after(29, 1_000, bad=1_000)
    assert bench.after(1) is Phase.HALF_OPEN
    assert bench.after(0, 100) is Phase.CLOSED


def test_a_small_share_needs_more_messages_to_be_tried() -> None:
    """One failure of ten is no sign that more than a fiftieth fail."""
    bench = Bench(above=0.02, action=BreakerAction.PAUSE, minimum=1_000)
    assert bench.breaker.trial == 100
    assert Bench(above=0.5, action=BreakerAction.PAUSE, minimum=1_000).breaker.trial == 100
    assert Bench(above=0.02, action=BreakerAction.PAUSE, minimum=50).breaker.trial == 50


def test_only_a_slowing_one_limits_while_it_is_open() -> None:
    """To a quarter of what its process did in the window."""
    rates = {}
    for action in BreakerAction:
        bench = Bench(action=action)
        bench.after(10, 1_000, bad=900)
        assert bench.breaker.phase is Phase.OPEN
        rates[action.value] = bench.breaker.rate
    assert rates == {"warn": None, "slow": 25.0, "pause": None}


def test_half_open_few_messages_are_tried() -> None:
    """Those that it decides by, a second; a warning one changes nothing."""
    rates = {}
    for action in BreakerAction:
        bench = Bench(action=action)
        bench.after(10, 1_000, bad=900)
        bench.after(30)
        rates[action.value] = bench.breaker.rate
    assert rates == {"warn": None, "slow": 10.0, "pause": 10.0}


def test_slowed_again_it_remembers_what_was_usual() -> None:
    """A quarter of the rate of a trial would be slower each time."""
    bench = Bench(action=BreakerAction.SLOW)
    bench.after(10, 1_000, bad=900)
    bench.after(30)
    bench.after(1, 10, bad=10)
    assert (bench.breaker.phase, bench.breaker.rate) == (Phase.OPEN, 25.0)


def test_closed_it_limits_nothing() -> None:
    """The consumer is as fast as before."""
    bench = Bench(action=BreakerAction.SLOW)
    bench.after(10, 1_000, bad=900)
    bench.after(30)
    bench.after(1, 10)
    assert (bench.breaker.phase, bench.breaker.rate) == (Phase.CLOSED, None)
