"""Counts the demo's effects from the table and the ledger, not from the app's own report."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from oncemq.cli.demo.events import STATES
from oncemq.contracts.verdict import Outcome
from oncemq.engine.base.overtaken import OVERTAKEN
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.message.identity import join_parts

_STEPS = text("SELECT order_id, status FROM order_steps WHERE order_id LIKE :mine ORDER BY id")
_COUNT = text("SELECT count(*) FROM order_steps WHERE order_id LIKE :mine")
_ENDED = "SELECT identity, outcome FROM oncemq_history WHERE outcome <> 'retry' AND identity LIKE "
_HISTORY = text(f"{_ENDED}:mine")
_HISTORY_BYTES = text(f"{_ENDED}cast(:mine AS binary)")


@dataclass(frozen=True, slots=True)
class Tally:
    """The demo's result.

    Args:
        published: messages that the broker confirmed.
        delivered: settled messages, redelivered ones included.
        applied: effects.
        duplicates: messages recognised as applied before.
        stale: messages that came after a later step of their order was applied.
        dead: dead letters, without the overtaken ones.
        overtaken: dead letters of events that a killed worker was running, and after which a later step of their order was
            applied before they came again.
        double: effects beyond the first of an event.
        backwards: effects of an earlier step after a later one.
        lost: events that were not settled.
    """

    published: int
    delivered: int
    applied: int
    duplicates: int
    stale: int
    dead: int
    overtaken: int
    double: int
    backwards: int
    lost: int

    @property
    def holds(self) -> bool:
        """Whether the guarantee held."""
        return not (self.double or self.backwards or self.lost or self.dead)


def progress(engine: Engine, prefix: str) -> int:
    """Return how many messages have been settled so far."""
    with _looking(engine) as connection:
        applied = int(connection.execute(_COUNT, {"mine": prefix + "%"}).scalar_one())
    return applied + len(_history(engine, prefix))


def tally(engine: Engine, prefix: str, published: int, identities: Collection[str]) -> Tally:
    """Return the counts for the events with these identities."""
    with _looking(engine) as connection:
        steps = [(row[0], row[1]) for row in connection.execute(_STEPS, {"mine": prefix + "%"})]
    history = _history(engine, prefix)
    outcomes = Counter(outcome for _, outcome in history)
    applied = Counter(join_parts(list(step), "identity") for step in steps)
    ended = applied.keys() | {identity for identity, outcome in history if outcome != Outcome.DUPLICATE}
    duplicates, stale = outcomes.pop(Outcome.DUPLICATE, 0), outcomes.pop(Outcome.STALE, 0)
    overtaken = outcomes.pop(OVERTAKEN, 0)
    return Tally(
        published=published,
        delivered=len(steps) + len(history),
        applied=len(steps),
        duplicates=duplicates,
        stale=stale,
        dead=sum(outcomes.values()),
        overtaken=overtaken,
        double=sum(count - 1 for count in applied.values()),
        backwards=_backwards(steps),
        lost=len(set(identities) - ended),
    )


def _history(engine: Engine, prefix: str) -> list[tuple[str, str]]:
    query = _HISTORY_BYTES if engine.dialect.name in {"mysql", "mariadb"} else _HISTORY
    with _looking(engine) as connection:
        return [(_text(row[0]), row[1]) for row in connection.execute(query, {"mine": prefix + "%"})]


def _looking(engine: Engine) -> Connection:
    """Return a connection that does not lock out the workers."""
    return engine.connect().execution_options(**{READ_ONLY: True})


def _text(stored: str | bytes) -> str:
    return stored.decode() if isinstance(stored, bytes) else stored


def _backwards(steps: Sequence[tuple[str, str]]) -> int:
    reached: dict[str, int] = {}
    wrong = 0
    for order, status in steps:
        place = STATES.index(status)
        wrong += place < reached.get(order, -1)
        reached[order] = max(place, reached.get(order, -1))
    return wrong
