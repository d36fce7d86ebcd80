"""One run of chosen tests on a copy of the sources, changed or not; nothing of the checkout itself is touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from defects.defect import SOURCES, Defect, DoesNotApply
from defects.witness import REPORT, TREE, WRONG_TREE
from services import environment

ROOT = Path(__file__).parents[2]
LIMIT = 120.0
"""Seconds in which a defect must be caught."""
_TEST_LIMIT = 60
_COPIED = (*SOURCES, "tests", "examples")
_TESTS_FAILED = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended.

    Args:
        failed: tests whose own steps failed; a failing setup proves nothing and does not count.
        seconds: how long it took, copying included.
        trouble: why it says nothing about the defect; empty when it does.
    """

    failed: tuple[str, ...]
    seconds: float
    trouble: str = ""


def try_out(
    defect: Defect | None,
    tests: Sequence[str],
    folder: Path,
    *,
    limit: float = LIMIT,
    all_tests: bool = False,
) -> Outcome:
    """Run `tests` on a copy of the sources with `defect` in it; None = a healthy copy.

    Args:
        defect: what to break.
        tests: pytest's names.
        folder: an empty one, for the copy.
        limit: seconds.
        all_tests: go on after the first failure.
    """
    started = time.monotonic()
    tree, report = folder / "tree", folder / "report"
    copy(tree)
    try:
        if defect is not None:
            defect.apply(tree)
    except DoesNotApply as error:
        return Outcome((), time.monotonic() - started, f"does not apply any more: {error}")
    code, said = _pytest(tests, tree, report, limit, stop_at_first=not all_tests)
    notes = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    failed = tuple(dict.fromkeys(note["test"] for note in notes if note["when"] != "setup"))
    trouble = "" if code in {0, _TESTS_FAILED} else _explain(code, said, limit)
    if code == _TESTS_FAILED and not failed:
        trouble = f"a test's setup failed: {notes[0]['test'] if notes else said}"
    return Outcome(failed, time.monotonic() - started, trouble)


def copy(tree: Path) -> None:
    """Copy what tests need, without compiled files: one of those could hide a change made in the same second."""
    tree.mkdir(parents=True)
    for name in _COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, tree)


def _pytest(
    tests: Sequence[str], tree: Path, report: Path, limit: float, *, stop_at_first: bool
) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "defects.witness"]
    command += [
        "-p",
        "no:cacheprovider",
        f"--timeout={_TEST_LIMIT}",
        *(["-x"] if stop_at_first else []),
        *tests,
    ]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=_environment(tree, report),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            said = ""
        finally:
            # A defect may leave workers behind; they are all in the session that was started here.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait(), said


def _environment(tree: Path, report: Path) -> Mapping[str, str]:
    paths = [str(tree / name) for name in (*SOURCES, "tests")]
    return {
        **_services(),
        **os.environ,
        # Before site-packages, and so before the checkout that is installed there.
        "PYTHONPATH": os.pathsep.join(paths),
        TREE: str(tree),
        REPORT: str(report),
    }


def _services() -> dict[str, str]:
    """Return the URLs that `make services` wrote; the copy has none of its own."""
    return environment.read(ROOT / ".services" / "env")


def _explain(code: int, said: str, limit: float) -> str:
    if code == -signal.SIGKILL:
        return f"no answer within {limit:.0f} s"
    last = said.strip().splitlines()[-1:]
    what = "the copy was not what ran" if code == WRONG_TREE else f"pytest ended with {code}"
    return f"{what}: {' '.join(last)}"
