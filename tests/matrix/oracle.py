"""Reads the tables after a trial, through a connection of its own, and says everything that is wrong."""

from collections.abc import Iterator

from matrix.catalog import STATES, Pair, Sequel
from matrix.tables import effects_of, things
from matrix.trial import FAULTS, IDENTITIES, Identity, Trial
from oncemq.ledger.messages import parking
from oncemq.ledger.records import claims


class Oracle:
    """Judges one trial.

    Args:
        trial: that has been run.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.pair: Pair = trial.pair
        found = effects_of(trial.engine, list(trial.names.values()))
        self.effects = {letter: found[name] for letter, name in trial.names.items()}
        self.newest = {letter: max(n for other, n in IDENTITIES if other == letter) for letter in trial.names}

    def judge(self) -> list[str]:
        """Return everything that is wrong; empty when the pair kept its promises."""
        return [
            *self.trial.broker.wrong,
            *(f"paused: {told.fields}" for told in self.trial.heard.of("consumer_paused")),
            *(f"failed: {told.arguments}" for told in self.trial.heard.of("failed")),
            *self._nothing_twice(),
            *self._nothing_lost(),
            *self._in_order(),
            *self._nothing_half(),
            *self._ends(),
            *self._nothing_left_behind(),
        ]

    def _nothing_twice(self) -> Iterator[str]:
        if self.pair.twice:
            return
        for letter, numbers in self.effects.items():
            if len(numbers) != len(set(numbers)):
                yield f"took effect twice: {letter} {numbers}"

    def _nothing_lost(self) -> Iterator[str]:
        for letter, number in IDENTITIES:
            overtaken = self.pair.sequel is Sequel.FORWARD and number < self.newest[letter]
            if number not in self.effects[letter] and not overtaken:
                yield f"lost: {letter} {number}"

    def _in_order(self) -> Iterator[str]:
        if self.pair.sequel is Sequel.ANY:
            return
        for letter, numbers in self.effects.items():
            if numbers != sorted(numbers):
                yield f"out of order: {letter} {numbers}"

    def _nothing_half(self) -> Iterator[str]:
        """What the handler and the strategies wrote into the thing is of the newest effect."""
        if self.pair.sequel is Sequel.ANY:
            return
        names = (self.pair.first, self.pair.second)
        rows = things(self.trial.engine, list(self.trial.names.values()))
        for letter, name in self.trial.names.items():
            newest = self.newest[letter]
            number, version, state = rows[name]
            if number != newest:
                yield f"{letter} has number {number} after {newest}"
            if version != (newest if "optimistic_lock" in names else None):
                yield f"{letter} has version {version} after {newest}"
            if state != (STATES[newest - 1] if "state_machine" in names else None):
                yield f"{letter} has state {state} after {newest}"

    def _ends(self) -> Iterator[str]:
        """Dead letters are what handlers rejected, and copies where copies are refused."""
        for tag, end in self.trial.broker.ended.items():
            identity = self.trial.tag_of(tag)
            rejected = FAULTS.get(identity) == "reject" and end == "dead: rejected"
            if end != "acknowledged" and not (
                rejected or self._copy_refused(identity, end) or self._copy_overtaken(identity, end)
            ):
                yield f"{identity} ended as {end}"

    def _copy_refused(self, one: Identity, end: str) -> bool:
        letter, number = one
        applied = number in self.effects[letter]
        refuses = self.pair.refuses_copies and not self._knows_copies
        return refuses and applied and end == "dead: attempts-exhausted"

    def _copy_overtaken(self, one: Identity, end: str) -> bool:
        """Where no strategy of the two knows identities, a copy that failed looks like a message that came too late."""
        letter, number = one
        failed = one in FAULTS and number in self.effects[letter]
        return not self._knows_copies and failed and end == "dead: overtaken"

    @property
    def _knows_copies(self) -> bool:
        """Whether one of the two remembers identities."""
        return any(entry.decides and not entry.compares_places for entry in self.pair.entries)

    def _nothing_left_behind(self) -> Iterator[str]:
        doubted = {claims.TABLE.name: 1} if self.pair.doubts else {}
        if dict(self.trial.left) != doubted:
            yield f"failures left behind: {dict(self.trial.left)}"
        rows = self.trial.rows()
        if rows[parking.TABLE.name]:
            yield f"still parked: {rows[parking.TABLE.name]}"
        for table, count in rows.items():
            if count > len(IDENTITIES):
                yield f"{count} rows in {table} for {len(IDENTITIES)} messages"
