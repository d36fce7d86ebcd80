"""The demo's events: the life cycles of orders from a CSV file, some sent twice, in shuffled order."""

import csv
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from oncemq.errors import ConfigError
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.identity import join_parts

STEPS = (
    ("purchased", "purchased_at"),
    ("approved", "approved_at"),
    ("shipped", "shipped_at"),
    ("delivered", "delivered_at"),
)
STATES = tuple(status for status, _ in STEPS)


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One step of an order's life."""

    at: datetime
    order_id: str
    status: str

    @property
    def identity(self) -> str:
        """The canonical identity that the app's YAML declares."""
        return join_parts([self.order_id, self.status], "identity")

    def message(self) -> OutgoingMessage:
        """Return the message of one send; a second send of the same event has another message id."""
        body = {"order_id": self.order_id, "status": self.status, "at": self.at.isoformat()}
        return OutgoingMessage(json.dumps(body).encode(), key=self.order_id, message_id=uuid4().hex)


def read_events(file: Path, prefix: str, rounds: int) -> list[Event]:
    """Return every step in `file`, in the order it happened.

    Args:
        file: one row per order; an empty time means that the step did not happen.
        prefix: prefix of each order's id, so that runs of the demo stay separate.
        rounds: how often the file's orders are repeated, each time as other orders.

    Raises:
        ConfigError: the file cannot be read; names file and line.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        return sorted(
            Event(datetime.fromisoformat(row[column]), f"{prefix}{number}-{row['order_id']}", status)
            for number in range(rounds)
            for row in rows
            for status, column in STEPS
            if row[column]
        )
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            [f"{file}: is not a file of orders ({error}) – it needs the columns order_id, {_columns()}"]
        ) from None


def _columns() -> str:
    return ", ".join(column for _, column in STEPS)


def as_networks_do(events: Sequence[Event], draw: random.Random, *, twice: float, window: int) -> list[Event]:
    """Return `events` with a share of them repeated, shuffled so that each may move by up to `window` places."""
    repeated: Iterable[Event] = draw.sample(events, round(twice * len(events)))
    places = [(place + draw.uniform(0, window), event) for place, event in enumerate(events)]
    known = {event: place for place, event in places}
    places += [(known[event] + draw.uniform(0, window), event) for event in repeated]
    return [event for _, event in sorted(places)]
