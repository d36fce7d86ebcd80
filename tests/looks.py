"""Runs the tests, and once more and alone what failed or did not run; says which were flaky, and hides nothing.

    python tests/looks.py [--flaky-limit 2] [--flaky-file .services/flaky.jsonl] [--until 1763800000] -- <arguments of pytest>

Real servers on busy cores miss deadlines that no defect made them miss, so a failure beside others is looked at again:
alone, and what passes there twice more while other processes keep all cores busy. What fails alone, or each time under
that load, has failed; the rest is flaky. A module that could not be collected fails at once: its tests would otherwise
be missing in silence. Everything is bounded in time: what is not done by then is named and fails the run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

FINE = (0, 1)
"""Exit codes of pytest after which its report is whole: all passed, or some failed."""
KEPT = ("--embedded-only", "-q")
"""Arguments of the first look that the others need, too."""
STRICT_FOLDERS = ("storm", "suites")
STRICT_WORDS = ("lost", "loses", "double", "twice")
MOST_AGAIN = 50
"""Tests that are looked at again; where more have failed, that is no matter of busy cores."""
SECONDS_AGAIN = 600.0
"""For all looks after the first, together."""
UNDER_LOAD = 2
"""Looks beside busy processes; what fails in so many of them has failed."""
SECONDS_TO_STOP = 60.0
"""Until a pytest that was interrupted has shown its summary."""
SHOWN = 10
"""Modules whose time is printed; a file has all."""
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10_000))"


@dataclass(eq=False)  # pytest keeps plugins in sets
class Report:
    """What became of each test of one look; a plugin of pytest that also understands its workers.

    Args:
        collected: the tests that were to run.
        outcomes: passed, skipped or failed, of each that ran.
        tracebacks: the first of each that failed.
        broken: modules that could not be collected.
        seconds: what the tests of each module took in all workers, with their fixtures.
    """

    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Remember where to write."""
        self._config = config

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what this process is to run."""
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Note what a worker of xdist has collected; all collect the same."""
        del node
        self._expect(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that could not be imported, or whose tests could not be made."""
        if report.failed and report.nodeid not in self.broken:
            self.broken.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test; a failure in any of its phases counts."""
        name = plain(report.nodeid)
        module = name.partition("::")[0]
        self.seconds[module] = self.seconds.get(module, 0.0) + report.duration
        if report.failed:
            self.outcomes[name] = "failed"
            self.tracebacks.setdefault(name, report.longreprtext)
            self._show(name)
        elif report.skipped:
            self.outcomes.setdefault(name, "skipped")
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")

    def _show(self, name: str) -> None:
        """Name a failure when it happens, so that a run that is cut off has said so."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            # After the letter of another test, of which the reporter does not know that it ends no line.
            terminal.write_line(f"\nfailed: {name}\n{_last_lines(self.tracebacks[name])}")
            terminal.flush()

    def _expect(self, names: Any) -> None:
        self.collected = list(dict.fromkeys([*self.collected, *map(plain, names)]))

    @property
    def unfinished(self) -> list[str]:
        """What failed or did not run."""
        good = {name for name, outcome in self.outcomes.items() if outcome != "failed"}
        return [name for name in dict.fromkeys([*self.collected, *self.outcomes]) if name not in good]


def plain(name: str) -> str:
    """Return a test's name without the group that `--dist loadgroup` adds to it."""
    at = name.rfind("@")
    return name[:at] if at > name.rfind("]") else name


def strict(name: str) -> bool:
    """Return whether a test's failure is never forgiven: those that look for lost and doubled effects."""
    path, _, test = name.partition("::")
    words = test.partition("[")[0].lower().split("_")
    return any(part in STRICT_FOLDERS for part in Path(path).parts) or any(
        word in words for word in STRICT_WORDS
    )


@dataclass(frozen=True)
class Bounds:
    """What a run may take.

    Args:
        until: when everything must be done, in seconds since 1970; None = never.
        flaky: so many flaky tests are allowed; None = any number.
        unforgiving: what looks for lost or doubled effects must pass at the first look.
        loaded: so often a test that passed alone is repeated beside busy processes.
        busy: how many of those.
    """

    until: float | None = None
    flaky: int | None = None
    unforgiving: bool = False
    loaded: int = UNDER_LOAD
    busy: int = os.cpu_count() or 1

    @property
    def left(self) -> float | None:
        """Seconds until everything must be done."""
        return None if self.until is None else max(1.0, self.until - time())


@dataclass
class Look:
    """One run of pytest.

    Args:
        code: its exit code.
        report: what became of each test.
        cut: whether time was up before it was done.
    """

    code: int
    report: Report
    cut: bool = False

    def passed(self, name: str) -> bool:
        """Return whether a test ran and did not fail."""
        return self.report.outcomes.get(name, "failed") != "failed"


def look(arguments: Sequence[str], folder: Path, seconds: float | None) -> Look:
    """Run pytest in a process of its own; after so many seconds it is told to stop and to show what failed."""
    told, found = folder / "arguments.json", folder / "report.json"
    told.write_text(json.dumps(list(arguments)))
    found.unlink(missing_ok=True)
    # No shell and no argument list: a look at many tests would be longer than a command line may be.
    process = subprocess.Popen([sys.executable, __file__, "--one-look", str(told), str(found)])
    code = _end_of(process, seconds)
    cut = code is None
    if cut:
        process.send_signal(signal.SIGINT)
        code = _end_of(process, SECONDS_TO_STOP)
    if code is None:
        process.kill()
        code = process.wait()
    return Look(code, Report(**json.loads(found.read_text())) if found.exists() else Report(), cut)


class Told(BaseException):
    """SIGTERM has come: time is up, too."""


def _end_of(process: subprocess.Popen[bytes], seconds: float | None) -> int | None:
    try:
        return process.wait(seconds)
    except (subprocess.TimeoutExpired, Told):
        return None


def _tell(*_: object) -> None:
    raise Told


def one_look(told: Path, found: Path) -> int:
    """Be that process."""
    # A shell's background jobs inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report = Report()
    code = int(pytest.main(json.loads(told.read_text()), plugins=[report]))
    found.write_text(json.dumps(asdict(report)))
    return code


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """Let so many processes compute meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass
class Again:
    """The looks after the first.

    Args:
        alone: the second, at what failed or did not run.
        loaded: those at what passed alone, beside busy processes.
    """

    alone: Look
    loaded: list[Look]

    def failed(self, name: str) -> bool:
        """Return whether a test failed, or did not run, alone or each time under load."""
        passed, ran = self.under_load(name)
        return not self.alone.passed(name) or (passed == 0 and ran >= UNDER_LOAD)

    def under_load(self, name: str) -> tuple[int, int]:
        """Return how often a test passed under load, and of how many times."""
        ran = [look for look in self.loaded if name in look.report.outcomes]
        return sum(look.passed(name) for look in ran), len(ran)


def look_again(first: Report, arguments: Sequence[str], folder: Path, bounds: Bounds) -> Again:
    """Look at what failed or did not run alone, and then under load at what failed before and passed alone."""
    seconds = SECONDS_AGAIN if bounds.left is None else min(SECONDS_AGAIN, bounds.left)
    end = monotonic() + seconds
    kept = [argument for argument in arguments if argument in KEPT]
    print(f"\nonce more, alone: {len(first.unfinished)} tests that failed or did not run", flush=True)  # noqa: T201
    again = Again(look([*kept, *first.unfinished], folder, seconds), [])
    names = [name for name in first.unfinished if name in first.tracebacks and again.alone.passed(name)]
    for _ in range(bounds.loaded if names else 0):
        if (left := end - monotonic()) > 0:
            print(f"\nonce more, beside busy processes: {len(names)} tests", flush=True)  # noqa: T201
            with beside(bounds.busy):
                again.loaded.append(look([*kept, *names], folder, left))
    return again


def main(bounds: Bounds, file: Path, arguments: Sequence[str]) -> int:
    """Look once, or at some tests again; returns the exit code."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="oncemq-looks-") as name:
        first = look(arguments, Path(name), bounds.left)
        _keep_seconds(first.report, file.with_name("seconds.tsv"))
        if first.cut:
            return _stopped(first.report, began)
        if first.report.broken or first.code not in FINE:
            for module in first.report.broken:
                print(f"not collected: {module}", flush=True)  # noqa: T201
            return first.code or 1
        unfinished = first.report.unfinished
        if not unfinished:
            return first.code
        if len(unfinished) > MOST_AGAIN:
            print(f"too many for another look: {len(unfinished)} failed or did not run, {MOST_AGAIN} may")  # noqa: T201
            return _stopped(first.report, began, why="")
        again = look_again(first.report, arguments, Path(name), bounds)
    return _judge(first.report, again, bounds, file, began)


def _keep_seconds(report: Report, file: Path) -> None:
    """Write what each module took, the dearest first, and show the first of them."""
    tests = Counter(name.partition("::")[0] for name in report.outcomes)
    rows = sorted(((seconds, tests[name], name) for name, seconds in report.seconds.items()), reverse=True)
    if not rows:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{seconds:.1f}\t{count}\t{name}\n" for seconds, count, name in rows))
    print(f"\nseconds in all workers, of {sum(report.seconds.values()):.0f}; all modules: {file}")  # noqa: T201
    for seconds, count, name in rows[:SHOWN]:
        print(f"{seconds:7.1f}  {name} ({count})")  # noqa: T201


def _stopped(report: Report, began: float, why: str = "time was up before all tests had run") -> int:
    """Say what failed and what did not run where there is no other look; returns the exit code."""
    failed = [name for name, outcome in report.outcomes.items() if outcome == "failed"]
    lacking = [name for name in report.unfinished if name not in failed]
    lines = [
        *(f"failed: {name}" for name in failed),
        *(f"did not run: {name}" for name in lacking[:MOST_AGAIN]),
    ]
    if len(lacking) > MOST_AGAIN:
        lines.append(f"did not run: {len(lacking) - MOST_AGAIN} more")
    for line in (*lines, *([why] if why else [])):
        print(line)  # noqa: T201
    _count("of one look", report.outcomes, len(lacking), 0, began)
    return 1


def _judge(first: Report, again: Again, bounds: Bounds, file: Path, began: float) -> int:
    left = sorted(name for name in first.unfinished if again.failed(name))
    flaky = [name for name in first.unfinished if name in first.tracebacks and name not in left]
    outcomes = {**first.outcomes, **again.alone.report.outcomes}
    outcomes |= dict.fromkeys((name for name in left if name in outcomes), "failed")
    verdict = _verdict(flaky, left, bounds)
    if flaky:
        _keep(file, flaky, first, again)
    lacking = [name for name in first.collected if name not in outcomes]
    for line in (
        *(f"flaky: {name} ({_loaded(again, name)})\n{_last_lines(first.tracebacks[name])}" for name in flaky),
        *(f"did not run in either look: {name}" for name in lacking),
        *verdict,
    ):
        print(line)  # noqa: T201
    _count("of both looks", outcomes, len(lacking), len(flaky), began)
    broken = again.alone.report.broken or again.alone.code != 0
    return 1 if verdict or lacking or broken else 0


def _keep(file: Path, flaky: Sequence[str], first: Report, again: Again) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        for name in flaky:
            kept = {"test": name, "strict": strict(name), "under_load": _loaded(again, name)}
            lines.write(json.dumps({**kept, "traceback": first.tracebacks[name]}) + "\n")


def _loaded(again: Again, name: str) -> str:
    passed, ran = again.under_load(name)
    return f"passed alone, and {passed} of {ran} times under load"


def _count(looks: str, outcomes: dict[str, str], lacking: int, flaky: int, began: float) -> None:
    """Print the closing line."""
    counts = [
        f"{sum(outcome == what for outcome in outcomes.values())} {what}"
        for what in ("failed", "passed", "skipped")
    ]
    print(f"{looks}: {', '.join(counts)}, {lacking} not run, {flaky} flaky in {monotonic() - began:.2f}s")  # noqa: T201


def _verdict(flaky: Sequence[str], left: Sequence[str], bounds: Bounds) -> list[str]:
    """Return why the run has failed, one line each."""
    return [
        *(f"failed twice or did not run: {name}" for name in left),
        *(
            f"never forgiven, since it looks for lost or doubled effects: {name}"
            for name in flaky
            if bounds.unforgiving and strict(name)
        ),
        *(
            [f"{len(flaky)} flaky tests, and {bounds.flaky} are allowed"]
            if bounds.flaky is not None and len(flaky) > bounds.flaky
            else []
        ),
    ]


def _last_lines(traceback: str) -> str:
    return "\n".join(f"    {line}" for line in traceback.splitlines()[-5:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one-look"]:
        sys.exit(one_look(Path(sys.argv[2]), Path(sys.argv[3])))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flaky-limit", type=int, help="more flaky tests than this fail the run")
    parser.add_argument("--flaky-file", type=Path, default=Path(".services/flaky.jsonl"))
    parser.add_argument(
        "--unforgiving",
        action="store_true",
        help="a test that looks for lost or doubled effects fails the run also when it passes alone",
    )
    parser.add_argument("--under-load", type=int, default=UNDER_LOAD, help="looks beside busy processes")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes beside those looks")
    parser.add_argument("--until", type=float, help="when everything must be done, in seconds since 1970")
    parser.add_argument("arguments", nargs="*", help="what pytest is given, after --")
    given = parser.parse_args()
    limits = Bounds(given.until, given.flaky_limit, given.unforgiving, given.under_load, given.busy)
    signal.signal(signal.SIGTERM, _tell)
    sys.exit(main(limits, given.flaky_file, given.arguments))
