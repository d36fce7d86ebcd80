"""Runs the tests, and once more and alone what failed or did not run; says which were flaky, and hides nothing.

    python tests/looks.py [--flaky-limit 2] [--flaky-file .services/flaky.jsonl] -- <arguments of pytest>

Real servers on busy cores miss deadlines that no defect made them miss, so a failure beside others is looked at again.
A module that could not be collected fails at once: its tests would otherwise be missing in silence.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

FINE = (0, 1)
"""Exit codes of pytest after which its report is whole: all passed, or some failed."""
KEPT = ("--embedded-only", "-q")
"""Arguments of the first look that the second needs, too."""
STRICT_FOLDERS = ("storm", "suites")
STRICT_WORDS = ("lost", "loses", "double", "twice")


@dataclass
class Report:
    """What became of each test of one look; a plugin of pytest that also understands its workers.

    Args:
        collected: the tests that were to run.
        outcomes: passed, skipped or failed, of each that ran.
        tracebacks: the first of each that failed.
        broken: modules that could not be collected.
    """

    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

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
        if report.failed:
            self.outcomes[name] = "failed"
            self.tracebacks.setdefault(name, report.longreprtext)
        elif report.skipped:
            self.outcomes.setdefault(name, "skipped")
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")

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


def look(arguments: Sequence[str], folder: Path) -> tuple[int, Report]:
    """Run pytest in a process of its own; returns its exit code and what became of each test."""
    told, found = folder / "arguments.json", folder / "report.json"
    told.write_text(json.dumps(list(arguments)))
    found.unlink(missing_ok=True)
    # No shell and no argument list: a look at many tests would be longer than a command line may be.
    code = subprocess.call([sys.executable, __file__, "--one-look", str(told), str(found)])
    return code, Report(**json.loads(found.read_text())) if found.exists() else Report()


def one_look(told: Path, found: Path) -> int:
    """Be that process."""
    report = Report()
    code = int(pytest.main(json.loads(told.read_text()), plugins=[report]))
    found.write_text(json.dumps(asdict(report)))
    return code


def main(limit: int | None, file: Path, arguments: Sequence[str], *, unforgiving: bool = False) -> int:
    """Look once or twice; returns the exit code."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="oncemq-looks-") as name:
        code, first = look(arguments, Path(name))
        if first.broken or code not in FINE:
            for module in first.broken:
                print(f"not collected: {module}", flush=True)  # noqa: T201
            return code or 1
        again = first.unfinished
        if not again:
            return code
        print(f"\nonce more, alone: {len(again)} tests that failed or did not run", flush=True)  # noqa: T201
        kept = [argument for argument in arguments if argument in KEPT]
        second_code, second = look([*kept, *again], Path(name))
    left = sorted(set(again) - {name for name in second.outcomes if second.outcomes[name] != "failed"})
    flaky = [name for name in again if name in first.tracebacks and name not in left]
    outcomes = {**first.outcomes, **second.outcomes}
    verdict = _verdict(flaky, left, limit, unforgiving=unforgiving)
    if flaky:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            lines.writelines(
                json.dumps({"test": name, "strict": strict(name), "traceback": first.tracebacks[name]}) + "\n"
                for name in flaky
            )
    lacking = [name for name in first.collected if name not in outcomes]
    counts = [
        f"{sum(outcome == what for outcome in outcomes.values())} {what}"
        for what in ("failed", "passed", "skipped")
    ]
    for line in (
        *(f"flaky: {name}\n{_last_lines(first.tracebacks[name])}" for name in flaky),
        *(f"did not run in either look: {name}" for name in lacking),
        *verdict,
        f"of both looks: {', '.join(counts)}, {len(lacking)} not run, {len(flaky)} flaky in {monotonic() - began:.2f}s",
    ):
        print(line)  # noqa: T201
    return 1 if verdict or lacking or second.broken or second_code != 0 else 0


def _verdict(flaky: Sequence[str], left: Sequence[str], limit: int | None, *, unforgiving: bool) -> list[str]:
    """Return why the run has failed, one line each."""
    return [
        *(f"failed twice or did not run: {name}" for name in left),
        *(
            f"never forgiven, since it looks for lost or doubled effects: {name}"
            for name in flaky
            if unforgiving and strict(name)
        ),
        *(
            [f"{len(flaky)} flaky tests, and {limit} are allowed"]
            if limit is not None and len(flaky) > limit
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
    parser.add_argument("arguments", nargs="*", help="what pytest is given, after --")
    given = parser.parse_args()
    sys.exit(main(given.flaky_limit, given.flaky_file, given.arguments, unforgiving=given.unforgiving))
