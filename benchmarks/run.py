"""`make bench`: measures every peer side by side, in interleaved repetitions, and shows losing rows like winning ones."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plot, report
from benchmarks.cases import CASES
from benchmarks.report import Results
from benchmarks.rows import LONG, QUICK, ROWS, Row
from benchmarks.stage.servers import ROOT, Servers, servers, surroundings

QUICK_SCALE = 0.15
_HERE = ROOT / "benchmarks" / "results"


def main() -> int:
    """Measure, print, save; returns 1 if a case could not be measured or had wrong effects."""
    chosen = _arguments()
    with servers() as where:
        missing = {
            *(() if where.rocketmq else ("rocketmq",)),
            *(() if where.kafka else ("kafka",)),
            *(() if where.redis else ("locks", "look-ups", "copies", "redis_lock", "tiered", "redis_flag")),
        }
        names = [name for name in chosen.only if chosen.named or name not in missing]
        rows = [row for name in names for row in ROWS[name]]
        cases = list(dict.fromkeys(case for row in rows for case in row.cases))
        results = Results(surroundings(where) | {"repetitions": str(chosen.repetitions)})
        for repetition in range(chosen.repetitions):
            _round(repetition, cases, where, chosen.scale, results)
            report.save(chosen.output, rows, results)
            plot.save(chosen.output / "plot.svg", results)
    print("\n" + report.markdown(rows, results))
    print(f"saved in {chosen.output}: table.md, results.json, plot.svg")
    _say_missed(rows, results)
    return 1 if results.failures else 0


def _round(repetition: int, cases: Sequence[str], where: Servers, scale: float, results: Results) -> None:
    # Every other round the other way round: what warms up or wears out in a round hits all alike.
    for name in cases if repetition % 2 == 0 else reversed(cases):
        case = CASES[name]
        if repetition and (case.once or case.long):
            continue
        started = time.monotonic()
        try:
            figures = case.measure(where, scale)
        except RuntimeError as error:
            results.failures[name] = _short(str(error))
            print(f"  round {repetition + 1}: {case.label}: FAILED: {error}", flush=True)
            continue
        results.figures.setdefault(name, []).append(figures)
        shown = ", ".join(f"{figure} {value:,.1f}" for figure, value in figures.items())
        print(
            f"  round {repetition + 1}: {case.label}: {shown} [{time.monotonic() - started:.0f} s]",
            flush=True,
        )


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"


def _say_missed(rows: Sequence[Row], results: Results) -> None:
    for row in rows:
        value = report.ratio(row, results)
        if value is not None and report.reached(row, value) is False:
            against = f" against {', '.join(row.theirs)}" if row.theirs else ""
            print(
                f"not reached: {', '.join(row.ours)}{against}: {value:.2f}, to reach {row.bound} {row.target:g}"
            )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="one round of the main rows with few messages")
    parser.add_argument("--long", action="store_true", help=f"also {', '.join(LONG)}")
    parser.add_argument("--repetitions", type=int, help="interleaved rounds; the median counts. Default 3")
    parser.add_argument("--scale", type=float, help="how many messages, against the default of 1")
    parser.add_argument("--output", type=Path, help="folder for table.md, results.json and plot.svg")
    chosen = parser.parse_args()
    partial = bool(chosen.only or chosen.quick)
    chosen.named = bool(chosen.only)
    everything = QUICK if chosen.quick else [name for name in ROWS if chosen.long or name not in LONG]
    chosen.only = chosen.only or list(everything)
    chosen.repetitions = chosen.repetitions or (1 if chosen.quick else 3)
    chosen.scale = chosen.scale or (QUICK_SCALE if chosen.quick else 1.0)
    chosen.output = chosen.output or (ROOT / ".services" / "bench" if partial else _HERE)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
