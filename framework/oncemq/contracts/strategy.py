"""Contract of a strategy: one way to make a handler idempotent, in hooks around one transaction.

    reserve(unit)      no transaction yet: Redis, committed claims
      load(run, items)   transaction open, Session empty: O(1) statements, keys sorted, locks
      decide(run, item)  arrival order; the first answer other than PROCEED wins
      … the handler …    when every strategy answers PROCEED
      record(run, item)  every final item, on every strategy, including those not asked
      write(run)         before a handler's first statement: the user's columns, with the changes of earlier items
      save(run)          after one flush: own tables and columns; remove every trace of non-final items
      confirm(run)       last before the commit: locks still held, fences compare
    committed(run)     caches and metrics; it cannot change the settlement
    release(unit)      own token only, after the settlement is decided

What each hook may do and what its errors mean:

| hook      | may                                              | an error means                                 |
|-----------|--------------------------------------------------|------------------------------------------------|
| reserve   | committed claims, Redis; `unit.verdicts[…] = …`  | infrastructure: released, retried              |
| load      | Core statements on `run.connection`, locks       | infrastructure: same run again; else a bug     |
| decide    | compute only; with `reads_between` read as well, | Culprits: as save; else a bug: the consumer    |
|           | and raise `Culprits` with an earlier item        | pauses                                         |
| record    | notes in memory                                  | a bug: the consumer pauses                     |
| write     | the user's columns of items recorded so far      | as save                                        |
| save      | own rows; compare-and-set; raise `Culprits`      | Culprits: those get the verdict, rest run again|
| confirm   | read; compare; raise `Culprits`                  | as save                                        |
| committed | caches, metrics                                  | logged only                                    |
| release   | its own token only                               | logged only                                    |

In a direct unit (`effects: external`) every item is a separate run without a transaction: hooks that need one
open it themselves. Once the handler was called the engine never runs it again by itself, so errors have other
meanings there:

| hook            | an error after the handler was called means                                               |
|-----------------|-------------------------------------------------------------------------------------------|
| record, save,   | that step alone is repeated, with pauses, until it succeeds or the process ends; steps    |
| confirm         | that succeeded are not repeated. So each must tolerate a repetition after a partial try   |
| save, confirm   | Culprits: the item gets that verdict; no roll-back is possible                            |
| committed       | logged only                                                                               |

`save` reads in `item.verdict` how the handler ended: PROCEED, or Reject or Retry with the `error` that it raised.
What a process leaves unsaved is redelivered in a new unit, hence with another owner: a strategy finds its own claim
and decides what it means. `release` follows when every item of the unit is finished; items never started are RETURNED
or deferred, and must leave no claim behind.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, MetaData, Table

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, UnitKind
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.publisher import Publishers
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Verdict
from oncemq.contracts.verification import Answer
from oncemq.message.expressions import Expression
from oncemq.redis.client import RedisClient


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a strategy that the engine and `check` must know.

    Args:
        decides: it can by itself answer "already applied"; a chain of guards only is refused.
        kinds: the kinds of unit that it supports.
        max_batch: the most items it can handle in one unit; None = any number.
        one_per_key: a unit may hold at most one item of a key.
        promises_order: it keeps a key's messages in order across processes.
        holds_key: while a message is being retried, later ones of its key must wait, unless the configuration says
            `on_retry: go_on`: they would take its place, and it would be too late.
        counts: each message takes a place in its key's order, also one that another strategy settles as duplicate
            or stale. So it decides about those too: a message that is early waits, whatever the others answer.
        compares_places: its Duplicate means that the message's place is taken (a state, a number, a version), perhaps
            by another message; that of others means that a message with the same identity was applied before.
        reads_between: its `decide` reads the user's rows as earlier handlers of the run have left them. The engine has written
            those handlers' work to the database by then, and a batch handler is called with one message at a time.
        per_consumer: all that it decides by is kept under `Scope.consumer`, but for columns named by `Strategy.owns`, so the
            instances of a broadcast consumer do not take each other's messages for duplicates.
    """

    decides: bool
    kinds: frozenset[UnitKind] = frozenset({UnitKind.TRANSACTIONAL})
    max_batch: int | None = None
    one_per_key: bool = False
    promises_order: bool = False
    holds_key: bool = False
    counts: bool = False
    compares_places: bool = False
    reads_between: bool = False
    per_consumer: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """Context in which a strategy is built, in addition to its own options.

    Args:
        app: the app's name.
        consumer: the scope of ledger rows, `app.consumer`.
        dialect: the database's SQLAlchemy dialect name (`postgresql`, `mysql`, `mariadb`, `sqlite`), or empty.
        engine: the app's database; None without one. For looking up tables at start and for separate transactions.
        metadata: shared by all strategies of the app, so that a user's table is reflected once.
        clock: the source of time.
        keep: how long records are kept.
        expression: compiles an expression such as `body.status`.
        import_object: resolves `module:name` to an object of the user's code.
        redis: the app's Redis, opened when first used; None without one.
        retry_horizon: the longest time from the first delivery to the last retry.
        publishers: makes a `Publisher` for the user's other functions, and for the strategy; None where nothing can be published.
        generations: records of applied messages go to the consumer's generations, not to `oncemq_processed`.
    """

    app: str
    consumer: str
    dialect: str
    engine: Engine | None
    metadata: MetaData
    clock: Clock
    keep: timedelta
    expression: Callable[[str], Expression]
    import_object: Callable[[str], Any]
    redis: RedisClient | None = None
    retry_horizon: timedelta = timedelta(0)
    publishers: Publishers | None = None
    generations: bool = False


@dataclass(frozen=True, slots=True)
class UpkeepTask:
    """Background work, done by one process at a time unless `everywhere`.

    `wanted` of all tasks that are due is asked in one statement, so an idle app asks little; `pace` keeps that little from
    growing with the number of processes.

    Args:
        name: unique in the app; the lease's name.
        every: pause between two runs.
        run: does one bounded step in transactions of its own; True = there is more, run again soon.
        everywhere: every process runs it, without a lease.
        rest: for work that must not disturb others: called after each step, returns the rest as a multiple of the time
            that all such tasks of one database took.
        pace: with `everywhere`: the pause of all processes but one, which a lease decides; None = `every`.
        wanted: returns the condition, without locks, under which there is something to do; None = it is always run.
    """

    name: str
    every: timedelta
    run: Callable[[Engine], bool]
    everywhere: bool = False
    rest: Callable[[], float] | None = None
    pace: timedelta | None = None
    wanted: Callable[[Dialect], ColumnElement[bool]] | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Result of the verification of one message whose effect was in doubt.

    Args:
        key: of the message.
        identity: of the message.
        answer: `done`, `not done`, `unknown`, `unanswered`, or `busy` when another process is working on it.
        reason: further details.
    """

    key: str
    identity: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a strategy keeps about a message outside the ledger's tables.

    Args:
        identity: of the message.
        key: of the message.
        value: its state in words.
        busy: why it must not be removed now; empty = it may.
    """

    identity: str
    key: str
    value: str
    busy: str = ""


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock outside the database, as it is now.

    Args:
        name: the lock's.
        owner: who holds it, in words of its kind.
        ends_in: seconds until it frees itself unless it is renewed; None = never.
        waiting: how many wait for it, if that is known; otherwise 0.
        kind: what it is, in the words of who provides it.
        left: how many others may hold it now, of what several may hold; None for a lock.
    """

    name: str
    owner: str
    ends_in: float | None
    waiting: int = 0
    kind: str = "lock"
    left: int | None = None


@dataclass(frozen=True, slots=True)
class HeldLocks:
    """The locks that were found, by name.

    Args:
        locks: the found ones.
        complete: whether there are no others.
    """

    locks: Sequence[HeldLock] = ()
    complete: bool = True


class Strategy:
    """Base class of strategies: hooks that do nothing; each strategy overrides what it needs.

    The engine calls only the hooks that a class overrides, so an empty hook costs nothing.
    """

    traits: ClassVar[Traits]
    name: str = ""
    """The name in the configuration; set when it is built from there."""
    second_look: bool = False
    """An item that violated a unique constraint runs once more in its unit, since `decide` may now see the conflicting row."""
    by_identity: bool = False
    """It decides by a message's identity only, so one call of a batch handler may have several messages of a key."""
    records_identity: bool = False
    """Its record of an applied message is the row of its identity in `oncemq_processed`, inserted before the handler runs."""
    keeps_result: bool = False
    """It stores the handler's result, and gives it to a duplicate, in `Item.result`."""
    knows_elsewhere: bool = False
    """It also finds a message applied that has no such row, by what another deduplicator has noted."""
    parks: bool = False
    """It may answer that a message is parked, so the consumer needs the store of parked messages."""
    publishes: bool = False
    """It publishes messages of its own, by `Scope.publishers`, in the transaction of a message that is applied."""
    caches_applied: bool = False
    """It caches outside the ledger that a message was applied; a running process could fill a cache again that `forget` empties."""
    ends_together: bool = False
    """In direct units `reserve_all` and `save_all` serve many messages at once; then it has no `confirm`."""
    by_message: ClassVar[frozenset[str]] = frozenset()
    """Options that find in a message what the strategy decides by; routes may have different ones for an order that they share."""
    stores_outgoing: bool = False
    """In a direct unit its `save` stores the handler's published messages in the transaction of its own record."""

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build a strategy from its YAML options.

        Raises:
            ConfigError: the options are not usable; says which and what to write.
        """
        raise NotImplementedError

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:  # noqa: ARG002
        """Return what is unsafe about this strategy on this consumer."""
        return ()

    def tables(self, metadata: MetaData) -> Sequence[Table]:  # noqa: ARG002
        """Return the ledger tables that this strategy needs, defined in `metadata`."""
        return ()

    def provides(self) -> Mapping[type, Callable[[Run, Item], Any]]:
        """Return the objects that this strategy provides to handlers, by annotation."""
        return {}

    def owns(self) -> Sequence[str]:
        """Return the columns of the user's tables, as `table.column`, whose values this strategy decides by.

        They belong to one consumer: another consumer of the same topic would find them changed, and skip its messages.
        """
        return ()

    def moves(self) -> LedgerMove | None:
        """Return how rows of the ledger that other options of this strategy would use get into the user's table; None = it has none.

        A consumer does not start while there are such rows: it would not see them. For `oncemq tables move`.
        """
        return None

    def upkeep(self) -> Sequence[UpkeepTask]:
        """Return the background tasks."""
        return ()

    def figures(self) -> Mapping[str, float]:
        """Return measurements of this strategy in this process, by name; cheap, from any thread."""
        return {}

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return what a person should know about this key, as text by name; read-only. For `oncemq inspect`."""
        return {}

    def locks(self, most: int) -> HeldLocks:  # noqa: ARG002
        """Return the locks outside the database that are held for its consumer's messages; read-only. For the dashboard.

        Args:
            most: how many are wanted; it need not look for more.

        Raises:
            OnceMQError: they cannot be asked for now.
        """
        return HeldLocks()

    def reconcile(
        self,
        engine: Engine,  # noqa: ARG002
        *,
        identity: str | None = None,  # noqa: ARG002
        answer: Answer | None = None,  # noqa: ARG002
    ) -> Iterable[Reconciled]:
        """Verify messages whose effect is in doubt; yields one result for each.

        Args:
            engine: the app's database.
            identity: only this message; None = all.
            answer: a known answer; None = call `verify`.
        """
        return ()

    def remembered(self, keys: Collection[str]) -> Iterable[Remembered]:  # noqa: ARG002
        """Yield what decides about messages of these keys outside the ledger, not counting caches. For `oncemq forget`."""
        return ()

    def forget(self, identities: Collection[str]) -> None:
        """Remove what is kept outside the ledger about these messages, so that they run when they come again."""

    def reserve(self, unit: Unit) -> None:
        """Take locks and claims outside any transaction; may set `unit.verdicts` of a delivery."""

    def reserve_all(self, units: Sequence[Unit]) -> None:
        """Do `reserve` for several direct units at once, where `ends_together` is set.

        After an error each is reserved again, by itself.
        """
        for unit in units:
            self.reserve(unit)

    def load_waits(self, run: Run) -> bool:  # noqa: ARG002
        """Return whether `load` of this direct run may wait for a server or the user's code; asked where `ends_together` is set."""
        return True

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read and lock the data needed to decide, in O(1) statements."""

    def decide(self, run: Run, item: Item) -> Verdict:  # noqa: ARG002
        """Return PROCEED, or why this item's handler must not run now."""
        return PROCEED

    def record(self, run: Run, item: Item) -> None:
        """Keep in memory what the key's next item must see; `item.verdict` is final."""

    def write(self, run: Run) -> None:
        """Write the records so far to the user's own tables: the next handler is about to send a statement."""

    def save(self, run: Run) -> None:
        """Write results, states, versions in bulk; remove every trace of items that are not final."""

    def save_all(self, runs: Sequence[Run]) -> None:
        """Do `save` for several runs of direct units at once, in another thread, where `ends_together` is set.

        An error is followed by calls for fewer runs, so that one of them harms no other. It raises no Culprits.
        """
        for run in runs:
            self.save(run)

    def confirm(self, run: Run) -> None:
        """Check, last before the commit, that everything the run relied on still holds."""

    def committed(self, run: Run) -> None:
        """Fill caches and counters; the transaction is durable."""

    def release(self, unit: Unit) -> None:
        """Release what `reserve` acquired."""


class FencingToken(int):
    """The number of a lock's acquisition, higher than those of all earlier holders.

    A handler that requests it by annotation can store it with its writes, where a lower number must be refused.
    """
