"""Notes what arrives at consumers while an operator records them, and brings it to the ledger."""

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.engine.recording.lines import DEAD, Noted, Wanted, lines_of
from oncemq.ledger.coordination import recordings
from oncemq.ledger.coordination.recordings import Ordered
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.message.envelope import Delivery, Message
from oncemq.observe.events import Observer

READ_EVERY: Final = 2.0
"""Seconds between two looks into the ledger: one statement for all consumers of a process."""
MOST_NOTES: Final = 100_000
"""Arrivals that a process keeps for the ledger; further ones are counted and lost."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of bodies that a process keeps for the ledger."""
_PART: Final = 5_000
"""Arrivals in one row."""
_UNDECIDED: Final = frozenset({Outcome.RETURNED, Outcome.DEFER, Outcome.VOID})
_REFUSED: Final = frozenset({Outcome.REJECT, Outcome.CONFLICT})

Decode = Callable[[Message], Any]


@dataclass
class _Running:
    """A recording that goes on here.

    Attributes:
        ordered: as the ledger has it.
        wanted: what to record.
        decode: of its consumer.
        now: the time of arrivals.
        notes: what is not stored yet.
        size: bytes of their bodies.
        lost: arrivals since the last stored part for which there was no room.
    """

    ordered: Ordered
    wanted: Wanted
    decode: Decode
    now: Callable[[], float]
    notes: list[Noted] = field(default_factory=list)
    size: int = 0
    lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, pairs: Sequence[tuple[Delivery, Verdict]]) -> None:
        at = self.now()
        if at > self.ordered.until.timestamp():
            return
        notes = [
            Noted(
                at,
                delivery.message,
                delivery.envelope,
                verdict.outcome.value,
                verdict.code if verdict.outcome in _REFUSED else "",
                _tried(verdict),
                delivery.parked_at is not None,
            )
            for delivery, verdict in pairs
            if verdict.outcome not in _UNDECIDED
        ]
        self.keep(notes)

    def keep(self, notes: list[Noted]) -> None:
        size = sum(len(each.message.body) + len(each.message.claimed or b"") for each in notes)
        with self.lock:
            if len(self.notes) + len(notes) > MOST_NOTES or self.size + size > _MOST_BYTES:
                self.lost += len(notes)
                return
            self.notes += notes
            self.size += size

    def take(self) -> tuple[list[Noted], int]:
        with self.lock:
            notes, self.notes = self.notes, []
            lost, self.lost = self.lost, 0
            self.size = 0
        return notes, lost

    def back(self, notes: list[Noted], lost: int) -> None:
        """Keep what could not be stored, before what has come since."""
        with self.lock:
            self.notes, newer = [], self.notes
            self.lost += lost
        self.keep(notes)
        self.keep(newer)


def _tried(verdict: Verdict) -> bool:
    """Return whether the handler ran."""
    if verdict.outcome is Outcome.PROCEED:
        return True
    if verdict.outcome is Outcome.RETRY:
        return not verdict.untried
    return verdict.outcome is Outcome.REJECT and verdict.error is not None


class TrafficRecorder(Observer):
    """Records the consumers of this process that an operator has asked for; one look-up a unit while none is recorded."""

    def __init__(self) -> None:
        self._running: Mapping[str, _Running] = {}
        self._read_at: float | None = None

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Note a unit's messages."""
        running = self._running.get(consumer)
        if running is not None:
            running.note(verdicts)

    def dead_lettered(self, consumer: str, delivery: Delivery, *, code: str, **_: Any) -> None:
        """Note that a message became a dead letter; one that could not be read has no verdict before."""
        running = self._running.get(consumer)
        if running is None:
            return
        outcome = DEAD if delivery.refusal is None else Outcome.REJECT.value
        running.keep([Noted(running.now(), delivery.message, delivery.envelope, outcome, code, False, False)])

    def look(
        self,
        engine: Engine | None,
        clock: Clock,
        consumers: Mapping[str, tuple[str, Decode]],
        asked: Callable[[], bool] = lambda: True,
    ) -> None:
        """Follow the ledger when it is time, and store what was noted.

        Args:
            engine: the app's database; None without one.
            clock: the source of time.
            consumers: names and decoders of this process's consumers, by ledger scope.
            asked: returns whether there may be a recording in the ledger.
        """
        if engine is None:
            return
        now = clock.monotonic()
        if self._read_at is None or now - self._read_at >= READ_EVERY:
            self._read_at = now
            if self._running or asked():
                self._read(engine, clock, consumers)
        for running in self._running.values():
            _store(engine, running)

    def _read(self, engine: Engine, clock: Clock, consumers: Mapping[str, tuple[str, Decode]]) -> None:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            found = recordings.of(connection, consumers)
        before = {running.ordered.recording: running for running in self._running.values()}
        wanted = {}
        for ordered in found:
            if not ordered.over:
                name, decode = consumers[ordered.consumer]
                running = before.pop(ordered.recording, None)
                if running is None:
                    running = _Running(
                        ordered,
                        Wanted.of_json(ordered.wanted),
                        decode,
                        lambda: clock.now().timestamp(),
                    )
                running.ordered = ordered
                wanted[name] = running
        self._running = wanted
        over = {ordered.recording for ordered in found if ordered.over}
        for ended in before.values():
            # Its row goes last, so that the command knows until when there may be more.
            if ended.ordered.recording in over:
                _store(engine, ended)
        for recording in over:
            with engine.begin() as connection:
                if recordings.abandoned(connection, recording):
                    recordings.remove(connection, recording)


def _store(engine: Engine, running: _Running) -> None:
    notes, lost = running.take()
    while notes or lost:
        part, rest = notes[:_PART], notes[_PART:]
        try:
            lines = zlib.compress(lines_of(part, running.wanted, running.decode).encode(), 1)
            with engine.begin() as connection:
                recordings.add(connection, running.ordered.recording, lines, lost)
        except BaseException:
            running.back(part + rest, lost)
            raise
        notes, lost = rest, 0
