"""Process crash at a named point of a unit: the redelivery finds all of it, or nothing."""

import os
import signal

import pytest

from oncemq.contracts.verdict import Outcome
from oncemq.testing.processes import processes
from oncemq.testing.strategy_suite.base import SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

DEADLINE = 60.0


class Crashes(SuitePart):
    """SIGKILL, then redelivery."""

    @pytest.mark.parametrize("point", ["handled", "before-commit", "committed"])
    def test_a_crash_neither_loses_nor_doubles(
        self, bench: Bench, chain: ChainSpec, url: str, scope: str, point: str
    ) -> None:
        """Killed before the commit: no trace; after it: everything. Redelivered: one effect each."""
        victim = processes().Process(target=deliver_and_die, args=(url, chain, scope, point))
        victim.start()
        victim.join(DEADLINE)
        assert victim.exitcode == -signal.SIGKILL
        committed = min(2, bench.largest_unit) if point == "committed" else 0
        assert len(bench.effects()) == committed
        outcomes = bench.deliver(message("a", 1), message("b", 1))
        assert outcomes == [Outcome.DUPLICATE] * committed + [Outcome.PROCEED] * (2 - committed)
        assert sorted(bench.effects()) == [("a", 1), ("b", 1)]


def deliver_and_die(url: str, chain: ChainSpec, scope: str, point: str) -> None:
    """Deliver two messages and die on the way; runs in a separate process."""

    def die(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    Bench(url, chain, scope, point=die).deliver(message("a", 1), message("b", 1))
