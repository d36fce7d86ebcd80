"""`sequence`: the messages of a key carry numbers, and run in that order without a gap."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, MetaData, Table

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Verdict, reject, stale
from oncemq.ledger.database.user_tables import whole_number
from oncemq.ledger.messages import parking
from oncemq.ledger.records import history, sequences
from oncemq.ledger.records.history import HistoryRow
from oncemq.ledger.sql.tables import attach
from oncemq.message.expressions import Expression
from oncemq_strategies.common.gap_policy import GAP, OPTIONS, Gaps
from oncemq_strategies.common.key_fingerprints import KeyFingerprints
from oncemq_strategies.common.options import Options
from oncemq_strategies.sequence.numbers import Numbers, SequenceNumbers
from oncemq_strategies.sequence.report import report


class _Notes:
    """State of one run.

    Attributes:
        numbers: the number that each key has reached.
        wanted: the number of each item that may run.
        lowest: the lowest waiting number of each key with a message that has waited too long.
        skipped: items that ran despite a gap before them, with the last number before the gap.
    """

    __slots__ = ("lowest", "numbers", "skipped", "wanted")

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.wanted: dict[Item, int] = {}
        self.lowest: dict[str, int] = {}
        self.skipped: dict[Item, int] = {}


class SequenceStrategy(Strategy):
    """The next number runs, an old one is Stale, the last one again is a Duplicate, an early one waits.

    Options, all optional:

    - `order: body.seq`: the message's number, an integer; without it the topic's `version`.
    - `first: 1` (default): the first number of a key. `first: any`: any number of a key unknown to the
      ledger; for joining a running stream whose older messages will not arrive.
    - `early: park` (default): kept in the ledger until the missing numbers have arrived; `retry`: redelivered by the
      broker after pauses of up to a minute, no attempt charged; or `reject`.
    - `park_limit: 1000` (default): messages of one key that may wait in the ledger; the broker keeps the others.
    - `gap_timeout: 10m` (default): time until `on_gap` applies to a missing number. It counts
      from the first wait, also while no consumer runs: it should be longer than any stop.
    - `on_gap: alert` (default): a warning per key each time that `gap_timeout` has passed; the messages keep waiting;
      `dead_letter`: a message that has waited so long becomes a dead letter with reason `gap`, the sequence stays blocked;
      `skip`, with `early: park`: the missing numbers are given up and listed in the history; if they arrive later,
      they are Stale.

    - `fingerprint: [body.amount, …]`: the last number again with other content is a Conflict.

    A number that another strategy of the list settles as a duplicate or as stale is used up. An early number waits
    regardless of the other strategies. The number of a dead letter is still expected: replay it.
    """

    traits: ClassVar[Traits] = Traits(
        decides=True,
        promises_order=True,
        holds_key=True,
        counts=True,
        compares_places=True,
        per_consumer=True,
    )
    by_message: ClassVar[frozenset[str]] = frozenset({"order"})

    def __init__(
        self,
        order: Expression | None,
        clock: Clock,
        consumer: str,
        *,
        first: int | None,
        early: str,
        gaps: Gaps,
        prints: KeyFingerprints,
    ) -> None:
        self._order = order
        self._clock = clock
        self._consumer = consumer
        self._first = first
        self._early = early
        self._gaps = gaps
        self._prints = prints
        self._numbers = SequenceNumbers(clock)
        self.parks = early == "park"

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("sequence", options, scope)
        given.known("order", "first", "early", "fingerprint", *OPTIONS)
        early = given.choice("early", ["park", "retry", "reject"], "park")
        return cls(
            given.expression("order", given.text("order")) if given.has("order") else None,
            scope.clock,
            scope.consumer,
            first=None if options.get("first") == "any" else given.whole("first", 1),
            early=early,
            gaps=Gaps.of(given, "sequence", scope.clock, early),
            prints=KeyFingerprints.of(given, scope.clock),
        )

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if facts.effects is Effects.EXTERNAL:
            yield Problem(
                "sequence keeps its numbers in the handler's database transaction; effects outside are not in it",
                "use two_phase or redis_flag for `effects: external`",
                "strategies",
            )
        elif not facts.dialect:
            yield Problem("sequence needs a database", "give the app a `database`", "strategies")
        if self._order is None and not facts.has_version:
            yield Problem(
                "sequence does not know where a message's number stands",
                "declare the topic's `version`, or write `order: body.…` in its options",
                "strategies",
            )

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of numbers and that of parked messages."""
        tables = (sequences.TABLE, parking.TABLE, *self._prints.tables())
        return tuple(attach(table, metadata) for table in tables)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock every key and read its number."""
        notes = run.notes[self] = _Notes(self._numbers.load(run, items))
        self._prints.load(run, items)
        if self._gaps.on_gap == "skip":
            late = {item.key for item in items if self._gaps.too_long(item)}
            if late:
                notes.lowest = parking.lowest(run.connection, run.consumer, late)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Compare the message's number with the key's next one."""
        notes: _Notes = run.notes[self]
        try:
            number = self._number(item)
        except ValueError as error:
            return reject(str(error))
        last = notes.numbers.last[item.key]
        if last is None:
            if self._first is not None and number < self._first:
                return reject(f"number {number} of key {item.key!r} comes before `first: {self._first}`")
            following = number if self._first is None else self._first
        else:
            following = last + 1
        if number == following or self._may_skip(notes, item, number, following):
            notes.wanted[item] = number
            return self._prints.may_run(run, item)
        if number < following:
            late = f"number {number} came late: the last one was {last}"
            return self._prints.same(run, item, number) if number == last else stale(late)
        return self._too_early(run, item, number, following)

    def record(self, run: Run, item: Item) -> None:
        """Let the key's next item see the number that the key has reached.

        A number that another strategy settles is used up like any other: it is not redelivered.
        """
        notes: _Notes = run.notes[self]
        number = notes.wanted.get(item)
        if number is not None:
            notes.numbers.move(item.key, number)
            self._prints.took(run, item, number)

    def save(self, run: Run) -> None:
        """Write the numbers, and wake messages that wait for them."""
        notes: _Notes = run.notes[self]
        self._numbers.save(run, notes.numbers)
        self._prints.save(run)
        if self.parks:
            run.wake.update(notes.numbers.moved)
        skipped = [
            self._history(run, item, before)
            for item, before in notes.skipped.items()
            if item.verdict is not None and item.verdict.final
        ]
        history.add(run.connection, skipped)

    def committed(self, run: Run) -> None:
        """Warn about messages that have waited too long."""
        self._gaps.alert(run)

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:
        """Return the next number, missing numbers and waiting messages."""
        return report(connection, self._consumer, key, self._first)

    def _number(self, item: Item) -> int:
        """Return the message's number.

        Raises:
            ValueError: it has none.
        """
        number: Any = item.envelope.version
        if self._order is not None:
            number = self._order(item.delivery.message, item.payload)
        if number is None:
            raise ValueError(f"a message of key {item.key!r} carries no number, so its place is not known")
        try:
            return whole_number(number)
        except (TypeError, ValueError):
            raise ValueError(
                f"the number of key {item.key!r} is {repr(number)[:60]}: a place in a sequence is a whole number of 64 bits"
            ) from None

    def _too_early(self, run: Run, item: Item, number: int, following: int) -> Verdict:
        why = f"number {number} of key {item.key!r} came early: {_missing(following, number)}"
        if self._early == "retry":
            return self._gaps.put_off(run, item, why)
        if self._early == "reject":
            return reject(why, code=GAP)
        return self._gaps.wait(run, item, number, why)

    def _may_skip(self, notes: _Notes, item: Item, number: int, following: int) -> bool:
        """Whether the gap before this message is given up: it has waited too long, and no earlier message waits."""
        if number <= following or notes.lowest.get(item.key) != number or not self._gaps.too_long(item):
            return False
        notes.skipped[item] = following - 1
        return True

    def _history(self, run: Run, item: Item, before: int) -> HistoryRow:
        number = run.notes[self].wanted[item]
        return HistoryRow(
            consumer=run.consumer,
            topic=item.envelope.topic,
            key=item.key,
            identity=item.envelope.identity,
            outcome=GAP,
            reason=f"{_missing(before + 1, number)} within {format_duration(self._gaps.timeout)}; skipped",
            attempt=item.envelope.attempt,
            at=self._clock.now(),
        )


def _missing(following: int, number: int) -> str:
    """Return the numbers between the next number and this one, in words."""
    if number == following + 1:
        return f"number {following} has not come"
    return f"numbers {following} to {number - 1} have not all come"
