"""From figures to the table for people and the file for programs; what was lost is shown like what was won."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.rows import AT_LEAST, Row

Figures = Sequence[Mapping[str, float]]
"""One entry for each repetition."""


@dataclass(slots=True)
class Results:
    """What has been measured so far.

    Args:
        surroundings: versions and settings.
        figures: by case, one entry for each repetition.
        failures: by case, why it could not be measured.
    """

    surroundings: dict[str, str]
    figures: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, case: str, figure: str) -> list[float]:
        """Return a figure of every repetition."""
        return [repetition[figure] for repetition in self.figures.get(case, ()) if figure in repetition]

    def median(self, case: str, figure: str) -> float | None:
        """Return the median; None where nothing was measured."""
        values = self.values(case, figure)
        return statistics.median(values) if values else None

    def best(self, cases: Sequence[str], row: Row) -> str | None:
        """Return the case with the best median of the row's figure."""
        found = {case: value for case in cases if (value := self.median(case, row.figure)) is not None}
        if not found:
            return None
        return (max if row.bound == AT_LEAST else min)(found, key=lambda case: found[case])


def ratio(row: Row, results: Results) -> float | None:
    """Return what is compared with the row's target."""
    ours = results.best(row.ours, row)
    if ours is None:
        return None
    value = results.median(ours, row.figure)
    if not row.theirs:
        return value
    theirs = results.best(row.theirs, row)
    other = results.median(theirs, row.figure) if theirs is not None else None
    return value / other if value is not None and other else None


def reached(row: Row, value: float) -> bool | None:
    """Return whether the target is reached; None where there is none."""
    if row.target is None:
        return None
    return value >= row.target if row.bound == AT_LEAST else value <= row.target


def markdown(rows: Sequence[Row], results: Results) -> str:
    """Return the whole report."""
    parts = [_comparisons(rows, results), _cases(results), _failures(results), _surroundings(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _comparisons(rows: Sequence[Row], results: Results) -> str:
    lines = ["| job | OnceMQ | compared with | ratio | to reach | |", "|---|---:|---|---:|---:|---|"]
    lines += [_comparison(row, results) for row in rows]
    return "\n".join(lines)


def _comparison(row: Row, results: Results) -> str:
    ours, theirs = results.best(row.ours, row), results.best(row.theirs, row)
    value = ratio(row, results)
    against = f"{CASES[theirs].label}: {_spread(results, theirs, row)}" if theirs is not None else "–"
    target = "–" if row.target is None else f"{row.bound} {row.target:g}"
    if ours is None or value is None:
        return f"| {row.job} | not measured | {against} | | {target} | |"
    shown = f"{value:.2f}" if row.theirs else f"{value:,.1f} {row.unit}"
    mark = {True: "reached", False: "**not reached**", None: ""}[reached(row, value)]
    return f"| {row.job}: {CASES[ours].label} | {_spread(results, ours, row)} | {against} | {shown} | {target} | {mark} |"


def _spread(results: Results, case: str, row: Row) -> str:
    values = results.values(case, row.figure)
    return f"{_number(statistics.median(values))} {row.unit} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _cases(results: Results) -> str:
    """Return every figure of every case: medians, with the lowest and highest of the first one."""
    lines = ["| measured | median (lowest–highest) | further figures |", "|---|---|---|"]
    for case, repetitions in results.figures.items():
        main, *others = repetitions[0]
        values = results.values(case, main)
        text = f"{_name(main)} {_number(statistics.median(values))} ({_number(min(values))}–{_number(max(values))})"
        medians = {other: statistics.median(results.values(case, other)) for other in others}
        more = ", ".join(f"{_name(other)} {_number(value)}" for other, value in medians.items() if value)
        lines.append(f"| {CASES[case].label} | {text} | {more} |")
    return "\n".join(lines)


def _name(figure: str) -> str:
    names = {"rate": "messages/s", "cpu_us": "processor µs per message", "publish_rate": "published/s"}
    words = names.get(figure, figure.replace("_us", " µs").replace("_ms", " ms").replace("_mb", " MB"))
    return words.replace("_", " ")


def _failures(results: Results) -> str:
    return "\n".join(f"- **failed**: {CASES[case].label}: {why}" for case, why in results.failures.items())


def _surroundings(results: Results) -> str:
    return "; ".join(f"{name} {value}" for name, value in results.surroundings.items())


def save(folder: Path, rows: Sequence[Row], results: Results) -> None:
    """Write `results.json` and `table.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "surroundings": results.surroundings,
        "cases": {
            case: {"label": CASES[case].label, "repetitions": figures}
            for case, figures in results.figures.items()
        },
        "failures": results.failures,
        "rows": [
            {
                "job": row.job,
                "ours": results.best(row.ours, row),
                "theirs": results.best(row.theirs, row),
                "figure": row.figure,
                "ratio": ratio(row, results),
                "bound": row.bound,
                "target": row.target,
            }
            for row in rows
        ],
    }
    (folder / "results.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    (folder / "table.md").write_text(markdown(rows, results))
