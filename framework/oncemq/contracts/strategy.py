"""The contract of a strategy: one way of making a handler idempotent, in hooks around one transaction.

    reserve(unit)      no transaction yet: Redis, committed claims
      load(run, items)   transaction open, Session empty: O(1) statements, keys sorted, locks
      decide(run, item)  arrival order; pure; the first that does not say PROCEED wins
      … the handler …    when every strategy says PROCEED
      record(run, item)  every final item, on every strategy, also those that were not asked
      write(run)         before a handler's first statement: the user's columns, as earlier items left them
      save(run)          after one flush: own tables and columns; remove every trace of non-final items
      confirm(run)       last before the commit: locks still held, fences compare
    committed(run)     caches and metrics; nothing here can change the settlement
    release(unit)      own token only, after the settlement is fixed

What each hook may do and what its errors mean:

| hook      | may                                              | an error means                                 |
|-----------|--------------------------------------------------|------------------------------------------------|
| reserve   | committed claims, Redis; `unit.verdicts[…] = …`  | infrastructure: released, tried again          |
| load      | Core statements on `run.connection`, locks       | infrastructure: same run again; else a bug     |
| decide    | compute only                                     | a bug: the consumer pauses                     |
| record    | notes in memory                                  | a bug: the consumer pauses                     |
| write     | the user's columns of items recorded so far      | as save                                        |
| save      | own rows; compare-and-set; raise `Culprits`      | Culprits: those get the verdict, rest run again|
| confirm   | read; compare; raise `Culprits`                  | as save                                        |
| committed | caches, metrics                                  | logged only                                    |
| release   | its own token only                               | logged only                                    |

In a direct unit (`effects: external`) every item is a run of its own, without a transaction: hooks that need one
open it themselves. Once the handler was called nothing may make it run again by itself, so an error means another
thing there:

| hook            | an error after the handler was called means                                               |
|-----------------|-------------------------------------------------------------------------------------------|
| record, save,   | that step alone is done again, with pauses, until it works or the process leaves; steps   |
| confirm         | that have worked are not repeated. So each must bear being done again after half a try    |
| save, confirm   | Culprits: the item gets that verdict; nothing can be rolled back                           |
| committed       | logged only                                                                               |

`save` is told by `item.verdict` how the handler ended: PROCEED, or Reject or Retry with the `error` that it raised.
What a process leaves unsaved comes again with a new unit, hence another owner: a strategy finds its own claim, and
decides what that means. `release` follows when every item of the unit is through; what was never started is RETURNED
or deferred, and must leave no claim behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, Engine, MetaData, Table

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, UnitKind
from oncemq.contracts.publisher import Publishers
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Verdict
from oncemq.contracts.verification import Answer
from oncemq.message.expressions import Expression
from oncemq.redis.client import RedisClient


@dataclass(frozen=True, slots=True)
class Traits:
    """What the engine and `check` must know about a strategy.

    Args:
        decides: it may alone say "already applied"; a chain of guards alone is refused.
        kinds: the kinds of unit it can be part of.
        max_batch: the most items it can handle in one unit; None = any number.
        one_per_key: a unit may hold at most one item of a key.
        promises_order: it keeps a key's messages in order across processes.
        holds_key: while a message is tried again, later ones of its key must wait, unless the configuration says
            `on_retry: go_on`: they would take its place, and it would come too late.
        counts: each message takes a place in its key's order, also one that another strategy settles as a duplicate
            or as stale. So it is asked about those too: what comes before its place waits, whatever the others say.
        compares_places: its Duplicate says that the message's place is taken (a state, a number, a version), perhaps
            by another message; that of others says that a message of the same identity was applied before.
    """

    decides: bool
    kinds: frozenset[UnitKind] = frozenset({UnitKind.TRANSACTIONAL})
    max_batch: int | None = None
    one_per_key: bool = False
    promises_order: bool = False
    holds_key: bool = False
    counts: bool = False
    compares_places: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """What a strategy is built with, besides its own options.

    Args:
        app: the app's name.
        consumer: the scope of ledger rows, `app.consumer`.
        dialect: the database's SQLAlchemy dialect name (`postgresql`, `mysql`, `mariadb`, `sqlite`), or empty.
        engine: the app's database; None without one. For table look-up at start and transactions of one's own.
        metadata: shared by all strategies of the app, so that a user's table is reflected once.
        clock: where time comes from.
        keep: how long records are kept.
        expression: compiles an expression such as `body.status`.
        import_object: resolves `module:name` to an object of the user's code.
        redis: the app's Redis, opened when first used; None without one.
        retry_horizon: the longest time from the first delivery to the last retry.
        publishers: make a `Publisher` for the user's other functions; None where nothing can be published.
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


@dataclass(frozen=True, slots=True)
class UpkeepTask:
    """Work in the background, by one process at a time unless it says otherwise.

    Args:
        name: unique in the app; the lease's name.
        every: pause between two runs.
        run: does one bounded step in transactions of its own; True = there is more, run again soon.
        everywhere: every process does it for itself, without a lease.
        rest: for work that must disturb nobody: asked after each step, returns for how many times as long as that
            took all such tasks of one database rest.
    """

    name: str
    every: timedelta
    run: Callable[[Engine], bool]
    everywhere: bool = False
    rest: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What came of asking about one message whose effect was in doubt.

    Args:
        key: of the message.
        identity: of the message.
        answer: `done`, `not done`, `unknown`, `unanswered`, or `busy` when somebody is at work on it.
        reason: a few words more.
    """

    key: str
    identity: str
    answer: str
    reason: str


class Strategy:
    """The base of every strategy: hooks that do nothing, of which each strategy overrides what it needs.

    The engine calls only the hooks that a class overrides, so an empty hook costs nothing.
    """

    traits: ClassVar[Traits]
    name: str = ""
    """As it stands in the configuration; set when it is built from there."""
    second_look: bool = False
    """An item that violated a unique constraint runs once more in its unit, since `decide` may now see the rival."""
    by_identity: bool = False
    """It decides by a message's identity alone, so one call of a batch handler may have several messages of a key."""
    parks: bool = False
    """It may say that a message is parked, so the consumer needs the place where those are kept."""
    stores_outgoing: bool = False
    """In a direct unit its `save` stores what the handler published, in the transaction of its own record."""

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Make one from its YAML options.

        Raises:
            ConfigError: the options cannot work; says which and what to write.
        """
        raise NotImplementedError

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:  # noqa: ARG002
        """Return what cannot be safe about this strategy on this consumer."""
        return ()

    def tables(self, metadata: MetaData) -> Sequence[Table]:  # noqa: ARG002
        """Return the ledger tables that this strategy needs, defined in `metadata`."""
        return ()

    def provides(self) -> Mapping[type, Callable[[Run, Item], Any]]:
        """Return what this strategy can hand to handlers, by the annotation that asks for it."""
        return {}

    def owns(self) -> Sequence[str]:
        """Return the columns of the user's tables, as `table.column`, by whose values this strategy decides.

        They belong to one consumer: another one of the same topic would find them changed, and skip its messages.
        """
        return ()

    def upkeep(self) -> Sequence[UpkeepTask]:
        """Return what must be done in the background."""
        return ()

    def figures(self) -> Mapping[str, float]:
        """Return what can be measured about this strategy in this process, by names of its own; cheap, any thread."""
        return {}

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return what a person should know about this key, in words by name; reads only. For `oncemq inspect`."""
        return {}

    def reconcile(
        self,
        engine: Engine,  # noqa: ARG002
        *,
        identity: str | None = None,  # noqa: ARG002
        answer: Answer | None = None,  # noqa: ARG002
    ) -> Iterable[Reconciled]:
        """Find out about messages whose effect is in doubt; yields what came of each.

        Args:
            engine: the app's database.
            identity: only about this one; None = about all.
            answer: what a person knows about them; None = ask.
        """
        return ()

    def reserve(self, unit: Unit) -> None:
        """Take locks and claims outside any transaction; may set `unit.verdicts` of a delivery."""

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read and lock what deciding needs, in O(1) statements."""

    def decide(self, run: Run, item: Item) -> Verdict:  # noqa: ARG002
        """Return PROCEED, or why this item's handler must not run now."""
        return PROCEED

    def record(self, run: Run, item: Item) -> None:
        """Remember in memory what the key's next item must see; `item.verdict` is final."""

    def write(self, run: Run) -> None:
        """Bring to the user's own tables what is recorded so far: the next handler is about to send a statement."""

    def save(self, run: Run) -> None:
        """Write results, states, versions in bulk; remove every trace of items that are not final."""

    def confirm(self, run: Run) -> None:
        """Check, last before the commit, that everything the run relied on still holds."""

    def committed(self, run: Run) -> None:
        """Fill caches and count; the transaction is durable."""

    def release(self, unit: Unit) -> None:
        """Give back what `reserve` took."""


class FencingToken(int):
    """The number of a lock's acquisition, higher than that of every earlier holder.

    A handler that asks for it by annotation can store it beside what it writes, where a lower one shall be refused.
    """
