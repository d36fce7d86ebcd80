"""`make bench-compare REF=…`: another commit and this checkout in turns, and whether one of them is faster.

Old and new take turns as ABBA: what warms up or wears out hits both alike. Each commit brings its own benchmarks, measured on
the same servers, in a fresh process each time; peers are left out. A row gets a verdict only where every pair says the same.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import AT_LEAST, ROWS
from benchmarks.stage.servers import ROOT

FEWEST_PAIRS = 5
SOURCES = ("framework", "adapters", "strategies")
PROCESSOR = "cpu_us"
_LINKED = (".services", ".venv-rocketmq-native", ".venv-rocketmq-grpc")
_MEASURE = """
import json, pathlib, sys
import oncemq
from benchmarks import run
for module in (oncemq, run):
    if pathlib.Path.cwd().resolve() not in pathlib.Path(module.__file__).resolve().parents:
        sys.exit(f"{module.__name__} comes from {module.__file__}, which is not the tree to measure")
with run.servers() as where:
    print(json.dumps(run.CASES[sys.argv[1]].measure(where, float(sys.argv[2]))))
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared: a case and one of its figures.

    Args:
        case: a name in CASES.
        figure: what is compared.
        more_is_better: whether a larger figure is the better one.
    """

    case: str
    figure: str
    more_is_better: bool


def subjects(rows: Sequence[str], *, processor: bool = False) -> list[Subject]:
    """Return our own cases of the rows, each once.

    Args:
        rows: names in ROWS.
        processor: compare rates by the processor time of a message, which other work on the machine changes less.
    """
    found = [
        Subject(case, PROCESSOR, more_is_better=False)
        if processor and row.figure == "rate"
        else Subject(case, row.figure, row.bound == AT_LEAST)
        for name in rows
        for row in ROWS[name]
        for case in row.ours
    ]
    return list(dict.fromkeys(found))


def in_turns(old: Callable[[], float], new: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Measure old, new, new, old, and so on; return a pair of figures for each turn."""
    found = []
    for turn in range(pairs):
        if turn % 2 == 0:
            before = old()
            found.append((before, new()))
        else:
            after = new()
            found.append((old(), after))
    return found


def ratios(pairs: Sequence[tuple[float, float]], *, more_is_better: bool) -> list[float]:
    """Return how many times as good as the old the new is, for each pair."""
    return [new / old if more_is_better else old / new for old, new in pairs]


def verdict(found: Sequence[float]) -> str:
    """Return `faster` or `slower` where all pairs agree, else that nothing is shown."""
    if min(found) > 1:
        return "faster"
    if max(found) < 1:
        return "slower"
    return "no difference shown"


def line(subject: Subject, pairs: Sequence[tuple[float, float]]) -> str:
    """Return a row of the table."""
    found = ratios(pairs, more_is_better=subject.more_is_better)
    old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
    return (
        f"| {subject.case} | {subject.figure} | {old:,.2f} | {new:,.2f} | {statistics.median(found):.3f} "
        f"| {min(found):.3f} – {max(found):.3f} | {verdict(found)} |"
    )


@contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """Lend a folder with the files of a commit, which finds our servers and environments."""
    with tempfile.TemporaryDirectory(prefix="oncemq-compare-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), ref)
        try:
            for name in _LINKED:
                if (ROOT / name).exists():
                    (tree / name).symlink_to(ROOT / name)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def announce(tree: Path) -> Path:
    """Write the entry points of a tree where Python finds them before those of the installed package."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    folder = tree / ".announced"
    info = folder / "oncemq-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oncemq\nVersion: 0\n")
    groups = {**project["entry-points"], "console_scripts": project.get("scripts", {})}
    lines = [
        text
        for group, points in groups.items()
        for text in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def surroundings_of(tree: Path) -> dict[str, str]:
    """Return the environment in which Python takes its modules from a tree.

    Benchmarks of older commits give the processes that they start a path of their own, which holds nothing but the
    tree: they find its sources by a `sitecustomize` there.
    """
    places = [str(tree / name) for name in SOURCES]
    if tree != ROOT:
        places.insert(0, str(announce(tree)))
        (tree / "sitecustomize.py").write_text(f"import sys\n\nsys.path[1:1] = {places!r}\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*places, str(tree)])}


def measure_in(tree: Path, environment: Mapping[str, str], subject: Subject, scale: float) -> float:
    """Return the figure of a case as a tree's own benchmarks measure it.

    Raises:
        RuntimeError: the tree does not have the case, or it could not be measured.
    """
    command = [sys.executable, "-c", _MEASURE, subject.case, str(scale)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise RuntimeError(f"{tree.name if tree != ROOT else 'this checkout'}: {' '.join(last)}")
    found = json.loads(done.stdout.splitlines()[-1])
    if subject.figure not in found:
        raise RuntimeError(f"{subject.case} tells no {subject.figure}, only {', '.join(found)}")
    return float(found[subject.figure])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print a table; returns 1 if a case is slower, or could not be measured."""
    asked = _parse(arguments)
    # Being told to end leaves no worktree behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    failed = False
    print(
        f"{asked.pairs} pairs of {asked.ref} and this checkout; a ratio above 1 is in favour of this checkout"
    )
    print("| case | figure | old | new | ratio | spread | verdict |\n|---|---|---:|---:|---:|---:|---|")
    with checkout(asked.ref) as tree:
        old, new = surroundings_of(tree), surroundings_of(ROOT)
        for subject in subjects(asked.only, processor=asked.processor):
            try:
                pairs = in_turns(
                    lambda: measure_in(tree, old, subject, asked.scale),  # noqa: B023 - called at once
                    lambda: measure_in(ROOT, new, subject, asked.scale),  # noqa: B023
                    asked.pairs,
                )
            except RuntimeError as error:
                print(f"| {subject.case} | could not be measured: {error} |", flush=True)
                failed = True
                continue
            row = line(subject, pairs)
            failed = failed or row.endswith("slower |")
            print(row, flush=True)
    print(f"by chance alone, a case gets a verdict in {200 / 2**asked.pairs:.1f} % of the comparisons")
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=["engine"], metavar="ROW")
    parser.add_argument("--pairs", type=int, default=6, help=f"at least {FEWEST_PAIRS}; default 6")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how many messages, against the default of 1"
    )
    parser.add_argument(
        "--processor", action="store_true", help="compare processor time a message instead of rates"
    )
    asked = parser.parse_args(arguments)
    if asked.pairs < FEWEST_PAIRS:
        parser.error(f"{asked.pairs} pairs show nothing: write --pairs {FEWEST_PAIRS} or more")
    return asked


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
