"""How patient tests are that wait for other processes: a slow or busy machine is no reason to fail.

A wait for a state that must come may take as long as it wants where nothing is wrong; its time-out only ends a test that
hangs. Bounds that are promises to users (seconds until work goes on after an outage) are never stretched.
"""

import os
from collections.abc import Iterable
from time import perf_counter

import pytest

ROUNDS = 500_000
USUAL = 0.025
"""Seconds that a core of two, with nothing else to do, needs for so many rounds on the machines these time-outs were chosen on."""
MOST = 4.0
VARIABLE = "ONCEMQ_TEST_PATIENCE"


def measured() -> float:
    """Return by how much this machine is slower now than the usual one, at least 1 and at most `MOST`."""
    seconds = []
    for _ in range(3):
        started = perf_counter()
        total = 0
        for number in range(ROUNDS):
            total += number
        seconds.append(perf_counter() - started)
    return min(MOST, max(1.0, sorted(seconds)[1] / USUAL))


PATIENCE = float(os.environ.get(VARIABLE) or measured())
os.environ.setdefault(VARIABLE, str(PATIENCE))  # processes that a test starts need not measure again


def stretch(items: Iterable[pytest.Item]) -> None:
    """Give tests that say their own time-out as much more of it."""
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is not None and mark.args:
            item.add_marker(pytest.mark.timeout(mark.args[0] * PATIENCE), append=False)
