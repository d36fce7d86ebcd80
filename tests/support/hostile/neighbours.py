"""Healthy messages alone, and the same with one hostile one in a hundred between them."""

import sys
from collections.abc import Callable
from pathlib import Path

from support.hostile.brokers import HostileBroker
from support.hostile.journey import LONG, Journey

HEALTHY, HOSTILE = (20_000, 200) if LONG else (400, 4)
LEAST = 0.5
"""Of the throughput without hostile messages; the short form is too short to be measured."""


def neighbours(name: str, make: Callable[[Path], HostileBroker], folder: Path, seed: int) -> None:
    """Run both, print what was measured, and insist on the outcome."""
    alone, _ = _run(make, folder / "alone", 0, seed)
    beside, sent = _run(make, folder / "beside", HOSTILE, seed)
    ratio = alone / beside
    sys.stdout.write(
        f"\nhostile neighbours on {name}: {HEALTHY / alone:,.0f}/s without, {HEALTHY / beside:,.0f}/s with {sent} "
        f"hostile ones, ratio {ratio:.2f}\n"
    )
    assert sent >= 0.9 * HOSTILE
    assert ratio >= LEAST or not LONG


def _run(make: Callable[[Path], HostileBroker], folder: Path, hostile: int, seed: int) -> tuple[float, int]:
    """Return the seconds until all healthy ones were applied, and how many hostile ones there were."""
    folder.mkdir()
    trip = Journey(make(folder), folder, ["plain"])
    try:
        sent = trip.publish(HEALTHY, hostile, seed)
        seconds = trip.run(HEALTHY, sent, 600.0 if LONG else 60.0)
        trip.assert_ended(HEALTHY, sent)
    finally:
        trip.close()
    return seconds, sent
