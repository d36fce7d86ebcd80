"""`optimistic_lock`: a message carries a version, and runs only against the row of that version."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Self

from sqlalchemy import MetaData, Table

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, reject, stale
from oncemq.ledger.database.user_tables import whole_number
from oncemq.ledger.messages import parking
from oncemq.ledger.records import row_mutexes as locked_rows
from oncemq.ledger.sql.tables import attach
from oncemq.message.expressions import Expression
from oncemq_strategies.common.entity_rows import entity_of
from oncemq_strategies.common.gap_policy import OPTIONS, Gaps
from oncemq_strategies.common.key_fingerprints import KeyFingerprints
from oncemq_strategies.common.options import Options
from oncemq_strategies.optimistic_lock.versions import Versions

_LOOK_AGAIN: Final = timedelta(minutes=1)
"""Interval of checks: other programs may change the row, and wake no message."""
_NO_SKIP: Final = "write `on_gap: dead_letter` or `alert`"
_MAY_RUN: Final = "write `early: run` if a row may skip versions"


class OptimisticLock(Strategy):
    """Compare-and-set of a version in the user's own row; the row is locked at the end of the unit only.

    Options:

    - `entity: {table: rides, key: ride_id, version: version}`: the version's column. `missing: run` (default;
      `insert` is a synonym: the handler inserts the row), `retry` or `reject` is the policy for a message whose
      row is missing. The strategy writes the column after the handler.
    - `version: body.version`: the message's version; without it the topic's `version`.
    - `message_version: next` (default): the row's version after the message, so 5 runs on a row at 4;
      5 on a row at 5 is a Duplicate. `message_version: current`: the row's version before the message, so 4
      runs on a row at 4 and leaves 5.
    - `early:` for a message ahead of its row: `retry` (default: redelivered by the broker after pauses of up to a
      minute, no attempt charged), `park` (waits in the ledger, and is checked when its row has reached the
      version before, at least every minute; `park_limit: 1000` per key) or `reject`; with `message_version: next`
      also `run`: only messages older than the row are skipped.
    - `gap_timeout: 10m` (default), for waiting messages: time until `on_gap` applies to a missing version.
      It counts from the first wait, also while no consumer runs: it should be longer than any stop.
      `on_gap: alert` (default): a warning per key each time that it has passed; the messages keep waiting;
      `dead_letter`: a message that has waited so long becomes a dead letter with reason `gap`.
    - `fingerprint: [body.amount, …]`: the row's version again with other content is a Conflict.
    - `first: 1` (default): the first version of a row; the version of a missing row or a NULL counts as the one before.

    A version that another strategy of the list settles as a duplicate or as stale is used up: the row moves to it
    without the handler, unless `early: run`.

    A row that is newer than the message means Stale. If another transaction changed the row while the handler ran, the
    message is decided again, and no attempt is charged.
    """

    traits: ClassVar[Traits] = Traits(decides=True, holds_key=True, counts=True, compares_places=True)
    by_message: ClassVar[frozenset[str]] = frozenset({"version"})

    def __init__(
        self,
        versions: Versions,
        expression: Expression | None,
        *,
        names_current: bool,
        early: str,
        first: int,
        gaps: Gaps,
        prints: KeyFingerprints,
    ) -> None:
        self._versions = versions
        self._expression = expression
        self._names_current = names_current
        self._early = early
        self._first = first
        self._gaps = gaps
        self._prints = prints
        self.parks = early == "park"

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("optimistic_lock", options, scope)
        given.known("entity", "version", "message_version", "early", "first", "fingerprint", *OPTIONS)
        names_current = given.choice("message_version", ["next", "current"], "next") == "current"
        early = given.choice("early", ["run", "retry", "park", "reject"], "retry")
        if early == "run" and names_current:
            given.refuse(
                "a message made for a later version of its row cannot run on this one",
                "write `early: retry`, or `message_version: next` if it names the version that it leaves",
                name="early",
            )
        if names_current and given.has("fingerprint"):
            given.refuse(
                "with `message_version: current` no message is a duplicate whose content could be compared",
                "leave it out, or add unique_key with a fingerprint",
                name="fingerprint",
            )
        expression = given.expression("version", given.text("version")) if given.has("version") else None
        first = given.whole("first", 1)
        entity, (column,) = entity_of(given, "optimistic_lock", scope, "version")
        versions = Versions(scope, entity, column, first - 1)
        gaps = Gaps.of(
            given,
            "optimistic_lock",
            scope.clock,
            early,
            look_again=_LOOK_AGAIN,
            no_skip=_NO_SKIP if names_current else f"{_MAY_RUN}, else {_NO_SKIP}",
        )
        return cls(
            versions,
            expression,
            names_current=names_current,
            early=early,
            first=first,
            gaps=gaps,
            prints=KeyFingerprints.of(given, scope.clock),
        )

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if facts.effects is Effects.EXTERNAL:
            yield Problem(
                "optimistic_lock protects what is in the handler's database transaction; effects outside are not",
                "use two_phase or redis_flag for `effects: external`",
                "strategies",
            )
        elif not facts.dialect:
            yield Problem("optimistic_lock needs a database", "give the app a `database`", "strategies")
        if self._expression is None and not facts.has_version:
            yield Problem(
                "optimistic_lock does not know where a message's version stands",
                "declare the topic's `version`, or write `version: body.…` in its options",
                "strategies",
            )
        yield from self._versions.check()

    def owns(self) -> Sequence[str]:
        """Return the column of versions."""
        return (self._versions.name,)

    def moves(self) -> LedgerMove:
        """Return how the numbers of `sequence` in the ledger get into the user's column."""
        return self._versions.moves(int(self._names_current))

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the tables of mutexes and of parked messages."""
        tables = (locked_rows.TABLE, parking.TABLE, *self._prints.tables())
        return tuple(attach(table, metadata) for table in tables)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read the version of every key."""
        run.notes[self] = {}
        self._versions.load(run, items)
        self._prints.load(run, items)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Compare the version after the message with the row's next version."""
        try:
            leaves = self._leaves(item)
        except ValueError as error:
            return reject(str(error))
        current = self._versions.current(run, item)
        if isinstance(current, Verdict):
            return current
        if leaves < self._first and (current is None or current < self._first):
            return reject(
                f"version {leaves} of key {item.key!r} comes before `first: {self._first}`, the first that a row has"
            )
        here = self._first - 1 if current is None else current
        if leaves <= here:
            return self._late(run, item, leaves, here)
        if leaves > here + 1 and self._early != "run":
            row = here if current is not None else "none yet"
            return self._too_early(run, item, leaves, f"version {leaves} came early: the row is at {row}")
        run.notes[self][item] = leaves  # the handler may change the payload
        return self._prints.may_run(run, item)

    def record(self, run: Run, item: Item) -> None:
        """Let the key's next item see the version after this item.

        A version that another strategy settles is used up like any other: it is not redelivered, and without it all
        later ones would be early. It cannot be written before a handler has created the row.
        """
        leaves = run.notes[self].get(item)
        if leaves is None or (item.verdict is not PROCEED and not self._may_use_up(run, item)):
            return
        self._versions.change(run, item, leaves)
        self._prints.took(run, item, leaves)
        if self.parks:
            run.wake[item.key] = leaves

    def write(self, run: Run) -> None:
        """Compare and set the versions that handlers can read."""
        self._versions.write(run)

    def save(self, run: Run) -> None:
        """Compare and set the versions."""
        self._versions.save(run)
        self._prints.save(run)

    def committed(self, run: Run) -> None:
        """Warn about messages that have waited too long."""
        self._gaps.alert(run)

    def _late(self, run: Run, item: Item, leaves: int, here: int) -> Verdict:
        if leaves == here and not self._names_current:
            return self._prints.same(run, item, leaves)
        return stale(f"version {leaves} came late: the row is at {here}")

    def _may_use_up(self, run: Run, item: Item) -> bool:
        return self._early != "run" and isinstance(self._versions.current(run, item), int)

    def _too_early(self, run: Run, item: Item, leaves: int, why: str) -> Verdict:
        if self._early == "park":
            self._versions.wait(run, item)
            return self._gaps.wait(run, item, leaves, why)
        return self._gaps.put_off(run, item, why) if self._early == "retry" else reject(why)

    def _leaves(self, item: Item) -> int:
        """Return the version that the row has after the message.

        Raises:
            ValueError: the message has none.
        """
        version: Any = item.envelope.version
        if self._expression is not None:
            version = self._expression(item.delivery.message, item.payload)
        try:
            number = whole_number(version)
        except (TypeError, ValueError):
            shown = repr(version)[:60]
            raise ValueError(
                f"the version of key {item.key!r} is {shown}: a version is a whole number"
            ) from None
        return number + 1 if self._names_current else number
