"""`make defects`: puts one defect after the other into a copy of the sources, and shows which test notices."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from defects.catalog import DEFECTS
from defects.defect import Defect
from defects.trial import LIMIT, Outcome, try_out


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every defect; returns 0 when all were caught, 1 when one survived, 2 when healthy sources fail."""
    asked = _parse(arguments)
    if asked.list:
        for defect in DEFECTS:
            _say(f"{defect.name:38} {defect.breaks}")
        return 0
    chosen = [defect for defect in DEFECTS if not asked.only or defect.name in asked.only]
    with tempfile.TemporaryDirectory(prefix="oncemq-defects-") as folder:
        if not _healthy(chosen, Path(folder)):
            return 2
        with ThreadPoolExecutor(asked.jobs) as pool:
            caught = list(pool.map(partial(_try, folder=Path(folder)), chosen))
    _say(f"\n{sum(caught)} of {len(caught)} defects caught")
    return 0 if all(caught) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make defects", description=main.__doc__)
    names = [defect.name for defect in DEFECTS]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help="may be repeated")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="so many at a time (default 2)")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    return parser.parse_args(arguments)


def _healthy(chosen: Sequence[Defect], folder: Path) -> bool:
    """A test that fails anyway catches nothing: all of them must pass on sources without defect."""
    tests = list(dict.fromkeys(test for defect in chosen for test in defect.tests))
    outcome = try_out(None, tests, folder / "healthy", limit=LIMIT * 5, all_tests=True)
    shutil.rmtree(folder / "healthy", ignore_errors=True)
    for test in outcome.failed:
        _say(f"fails without any defect: {test}")
    if outcome.trouble:
        _say(f"the tests cannot run without any defect: {outcome.trouble}")
    if outcome.failed or outcome.trouble:
        return False
    _say(f"without any defect all pass: {len(tests)} selections in {outcome.seconds:.1f} s\n")
    return True


def _try(defect: Defect, folder: Path) -> bool:
    place = folder / defect.name
    outcome = try_out(defect, defect.tests, place)
    shutil.rmtree(place, ignore_errors=True)
    caught = bool(outcome.failed) and outcome.seconds <= LIMIT
    _say(_line(defect, outcome, caught=caught))
    return caught


def _line(defect: Defect, outcome: Outcome, *, caught: bool) -> str:
    head = f"{'caught  ' if caught else 'SURVIVED'} {outcome.seconds:6.1f} s  {defect.name}"
    why = outcome.trouble or "its tests passed"
    return (
        f"{head}\n    breaks: {defect.breaks}\n    {'by: ' + outcome.failed[0] if caught else 'why: ' + why}"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
