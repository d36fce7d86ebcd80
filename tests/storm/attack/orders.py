"""Messages from a file of real orders: every step of every order's life, told in the order in which it happened."""

import csv
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parents[3] / "examples" / "order-lifecycle" / "orders.csv"
STEPS = ("purchased", "approved", "shipped", "delivered")


def order_file() -> Path:
    """Return the file to tell: the environment's, else the shipped one."""
    return Path(os.environ.get("ONCEMQ_TEST_ORDERS", SHIPPED))


def events(file: Path) -> Iterator[dict[str, Any]]:
    """Yield messages for ever: when the file is told, it is told again as other orders."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    steps = sorted(
        (row[f"{state}_at"], step, row["order_id"], state)
        for row in rows
        for step, state in enumerate(STEPS, 1)
        if row[f"{state}_at"]
    )
    for told in itertools.count():
        for _, step, order, state in steps:
            yield {"id": f"{told}-{order}-{state}", "key": f"{told}-{order}", "state": state, "step": step}


def as_networks_do(
    messages: list[dict[str, Any]], draw: random.Random, *, twice: float = 0.3, window: int = 50
) -> list[dict[str, Any]]:
    """Return messages with a share of them a second time, each up to `window` places from where it belongs."""
    places = [(place + draw.uniform(0, window), place, message) for place, message in enumerate(messages)]
    again = draw.sample(places, round(twice * len(places)))
    places += [(place + draw.uniform(0, window), number, message) for place, number, message in again]
    return [message for _, _, message in sorted(places, key=lambda entry: entry[:2])]


def as_they_happened(
    messages: list[dict[str, Any]], draw: random.Random, *, twice: float = 0.3, window: int = 50
) -> list[dict[str, Any]]:
    """Return messages in their order, with a share of them a second time up to `window` places later."""
    again = [
        (place + draw.uniform(0, window), place)
        for place in draw.sample(range(len(messages)), round(twice * len(messages)))
    ]
    places = sorted([*((float(place), place) for place in range(len(messages))), *again])
    return [messages[place] for _, place in places]
