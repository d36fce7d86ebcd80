"""The throughput of every peer as bars, in an SVG that shows on light and dark pages alike."""

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.cases import CASES
from benchmarks.report import Results

GROUPS: dict[str, tuple[str, ...]] = {
    "Effectively once: RabbitMQ → PostgreSQL, 10 % duplicates (messages/s)": (
        *("oncemq-1", "oncemq-2", "oncemq-3", "oncemq-batch", "group-commit"),
        *("dramatiq-1", "dramatiq-2", "dramatiq-3"),
        *("faststream-1", "faststream-2", "faststream-3", "faststream-threads"),
    ),
    "At least once, empty handler (messages/s)": ("empty", "faststream-empty", "pika"),
    "Rows that many messages change (messages/s)": (
        *("shared", "shared-2-workers", "shared-2-processes", "shared-single"),
    ),
    "Healthy messages beside poison (messages/s)": (
        *("poison-none", "poison-early-1", "poison-early-10", "poison-late-1", "poison-late-10"),
    ),
    "20 ms of I/O in the handler, 32 at once (messages/s)": (
        *("io-async", "faststream-io-async", "io-sync", "faststream-io-sync"),
    ),
}

_WIDTH, _LABELS, _BAR, _GAP, _HEAD = 860, 350, 16, 6, 34
_OURS, _THEIRS, _TEXT, _WHISKER = "#2f6fde", "#9aa4b2", "#7d8590", "#57606a"


def save(file: Path, results: Results) -> None:
    """Draw what has been measured; each group has a scale of its own."""
    parts: list[str] = []
    top = 8
    for title, cases in GROUPS.items():
        measured = [case for case in cases if results.values(case, "rate")]
        if measured:
            parts += _group(title, measured, results, top)
            top += _HEAD + len(measured) * (_BAR + _GAP) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" font-family="sans-serif" font-size="12">'
    file.write_text("\n".join([head, *parts, "</svg>"]) + "\n")


def _group(title: str, cases: Sequence[str], results: Results, top: int) -> list[str]:
    scale = (_WIDTH - _LABELS - 90) / max(max(results.values(case, "rate")) for case in cases)
    parts = [f'<text x="4" y="{top + 18}" fill="{_TEXT}" font-weight="bold">{escape(title)}</text>']
    for place, case in enumerate(cases):
        parts += _bar(case, results, scale, top + _HEAD + place * (_BAR + _GAP))
    return parts


def _bar(case: str, results: Results, scale: float, top: int) -> list[str]:
    values, median = results.values(case, "rate"), results.median(case, "rate") or 0.0
    label = CASES[case].label
    colour = _OURS if label.startswith("OnceMQ") else _THEIRS
    width, middle = max(1, math.ceil(median * scale)), top + _BAR / 2
    low, high = (_LABELS + value * scale for value in (min(values), max(values)))
    return [
        f'<text x="{_LABELS - 8}" y="{top + 12}" text-anchor="end" fill="{_TEXT}">{escape(label)}</text>',
        f'<rect x="{_LABELS}" y="{top}" width="{width}" height="{_BAR}" rx="2" fill="{colour}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{_WHISKER}"/>',
        f'<text x="{max(high, _LABELS + width) + 6:.0f}" y="{top + 12}" fill="{_TEXT}">{median:,.0f}</text>',
    ]
