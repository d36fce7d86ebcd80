"""Process crash at a named point of a direct unit: nothing can be rolled back, and one effect must result."""

import os
import signal
import time

import pytest

from oncemq.contracts.verdict import Outcome
from oncemq.testing.processes import processes
from oncemq.testing.strategy_suite.base import SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

DEADLINE = 60.0
PAUSE = 0.05


class DirectCrashes(SuitePart):
    """SIGKILL, then redelivery."""

    @pytest.mark.parametrize(
        ("point", "effects"), [("reserved", 0), ("handled", 1), ("saved", 1), ("committed", 1)]
    )
    def test_a_crash_neither_loses_nor_doubles(
        self, bench: Bench, chain: ChainSpec, url: str, scope: str, point: str, effects: int
    ) -> None:
        """Killed before or after the first message's effect; redelivered until none is deferred: one effect each."""
        victim = processes().Process(target=deliver_and_die, args=(url, chain, scope, point))
        victim.start()
        victim.join(DEADLINE)
        assert victim.exitcode == -signal.SIGKILL
        assert len(bench.effects()) == effects
        until = time.monotonic() + DEADLINE
        outcomes = bench.deliver(message("a", 1), message("b", 1))
        while Outcome.DEFER in outcomes and time.monotonic() < until:
            time.sleep(PAUSE)
            outcomes = bench.deliver(message("a", 1), message("b", 1))
        # Both were deferred, or the first is done; the second copy of a round may have come after the first had run.
        assert set(outcomes) <= {Outcome.PROCEED, Outcome.DUPLICATE}
        assert sorted(bench.effects()) == [("a", 1), ("b", 1)]


def deliver_and_die(url: str, chain: ChainSpec, scope: str, point: str) -> None:
    """Deliver two messages and die while running the first; runs in a separate process."""

    def die(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    Bench(url, chain, scope, point=die).deliver(message("a", 1), message("b", 1))
