"""`state_machine`: a message asks to move an entity to a state; the entity's current state decides whether it may."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol, Self

from sqlalchemy import MetaData, Table

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, reject, stale
from oncemq.ledger.messages import parking
from oncemq.ledger.records import row_mutexes as locked_rows
from oncemq.ledger.records import states
from oncemq.ledger.sql.tables import attach
from oncemq.message.expressions import Expression
from oncemq.registry import did_you_mean
from oncemq_strategies.common.entity_rows import entity_of
from oncemq_strategies.common.gap_policy import OPTIONS, Gaps
from oncemq_strategies.common.key_fingerprints import KeyFingerprints
from oncemq_strategies.common.options import Options
from oncemq_strategies.state_machine.entity_column import EntityStates
from oncemq_strategies.state_machine.ledger_states import LedgerStates
from oncemq_strategies.state_machine.timeouts import StateTimeouts
from oncemq_strategies.state_machine.transitions import OrderedStates, Rules, Step, Transitions

_TELLS_COPIES: Final = frozenset({"unique_key", "tiered", "sequence", "optimistic_lock"})
_LOOK_AGAIN: Final = timedelta(minutes=1)
"""Interval of checks: other programs may change the entity's row, and wake no message."""


class _Store(Protocol):
    """Store of the entities' states.

    Attributes:
        name: the user's column, as `table.column`; empty if the ledger keeps the states.
    """

    name: str

    def check(self, wanted: Sequence[str]) -> list[Problem]: ...
    def moves(self) -> LedgerMove | None: ...
    def load(self, run: Run, items: Sequence[Item]) -> None: ...
    def current(self, run: Run, item: Item) -> str | Verdict | None: ...
    def change(self, run: Run, item: Item, state: str) -> None: ...
    def write(self, run: Run) -> None: ...
    def save(self, run: Run) -> None: ...


class StateMachine(Strategy):
    """The same state again is a Duplicate, an earlier state is Stale, the next one runs.

    Options:

    - `to: body.status`: the state that a message asks for.
    - `states: [created, paid, shipped]`: in order; or
    - `transitions: {created: [paid, cancelled], paid: [shipped]}`: allowed successors of each state. An entity begins with
      a state of `initial: [created]`; without it, with a state that follows no other.
    - `final: [cancelled]`, with `transitions`: states that end an entity. Whatever comes after them is Stale; without
      it, a state that no transition leads to becomes a dead letter.
    - `early:` for a state further ahead than the next one: `run` (default of `states`: skip ahead),
      `retry` (default of `transitions`: redelivered by the broker after pauses of up to a minute, no attempt
      charged), `park` (waits in the ledger, and is checked when the entity's state
      has changed, at least every minute; `park_limit: 1000` per key) or `reject`.
    - `gap_timeout: 10m` (default), for waiting messages: time until `on_gap` applies to a missing state.
      It counts from the first wait, also while no consumer runs: it should be longer than any stop.
      `on_gap: alert` (default): a warning per key each time that it has passed; the messages keep waiting;
      `dead_letter`: a message that has waited so long becomes a dead letter with reason `gap`.
    - `entity: {table: rides, key: ride_id, state: status}`: the state is kept in the user's table. `missing: run`
      (default), `retry` or `reject` is the policy for a message whose row is missing; with `run` its handler
      creates the row. The strategy writes the column after the handler. States that the ledger had before are moved by
      `oncemq tables move`, and the consumer does not start before.
    - `timeouts: {unpaid: {after: 30m, publish: order.expired}}`: when an entity enters the state, a message is stored for later, and
      cancelled when the entity leaves the state, both in the handler's transaction. It goes to the topic as `{"key": …,
      "state": "unpaid", "since": …, "after": "30m"}`.
    - `fingerprint: [body.amount, …]`: the same state again with other content is a Conflict.
    """

    traits: ClassVar[Traits] = Traits(decides=True, holds_key=True, compares_places=True, per_consumer=True)
    by_message: ClassVar[frozenset[str]] = frozenset({"to"})

    def __init__(
        self,
        wanted: Expression,
        rules: Rules,
        store: _Store,
        early: str,
        gaps: Gaps,
        prints: KeyFingerprints,
        timeouts: StateTimeouts,
    ) -> None:
        self._wanted = wanted
        self._rules = rules
        self._store = store
        self._early = early
        self._gaps = gaps
        self._prints = prints
        self._timeouts = timeouts
        self.publishes = bool(timeouts)
        self.parks = early == "park"

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("state_machine", options, scope)
        given.known(
            *(
                "to",
                "states",
                "transitions",
                "initial",
                "final",
                "early",
                "entity",
                "fingerprint",
                "timeouts",
            ),
            *OPTIONS,
        )
        wanted = given.expression("to", given.text("to"))
        rules = _rules(given)
        default = "run" if isinstance(rules, OrderedStates) else "retry"
        early = given.choice("early", ["run", "retry", "park", "reject"], default)
        gaps = Gaps.of(
            given, "state_machine", scope.clock, early, look_again=_LOOK_AGAIN, no_skip=_no_skip(rules)
        )
        final = given.names("final") if given.has("final") else ()
        timeouts = StateTimeouts.of(given, rules, final, scope)
        prints = KeyFingerprints.of(given, scope.clock)
        return cls(wanted, rules, _store(given, scope), early, gaps, prints, timeouts)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if facts.effects is Effects.EXTERNAL:
            yield Problem(
                "state_machine protects what is in the handler's database transaction; effects outside are not",
                "use two_phase or redis_flag for `effects: external`",
                "strategies",
            )
        elif not facts.dialect:
            yield Problem("state_machine needs a database", "give the app a `database`", "strategies")
        yield from self._store.check(self._rules.states)
        cycle = self._rules.cycle
        if cycle and _TELLS_COPIES.isdisjoint(facts.strategies):
            yield Problem(
                f"an entity can come back to a state ({' → '.join(cycle)}), so a copy of an old message would run again",
                "add a strategy that knows copies: unique_key with an identity for each message, or sequence or "
                "optimistic_lock with numbers",
                "strategies",
            )

    def owns(self) -> Sequence[str]:
        """Return the column of states, if the user's table keeps it."""
        return (self._store.name,) if self._store.name else ()

    def moves(self) -> LedgerMove | None:
        """Return how states in the ledger get into the user's column; None where the ledger keeps them."""
        return self._store.moves()

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the tables of states, of mutexes and of parked messages."""
        tables = (states.TABLE, locked_rows.TABLE, parking.TABLE, *self._prints.tables())
        return tuple(attach(table, metadata) for table in tables)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock and read the state of every key."""
        run.notes[self], run.notes[self._timeouts] = {}, []
        self._store.load(run, items)
        self._prints.load(run, items)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Compare the entity's state with the requested one."""
        wanted = self._wanted(item.delivery.message, item.payload)
        if not isinstance(wanted, str):
            return reject(f"`to` found {wanted!r} in the message of key {item.key!r}: a state is text")
        current = self._store.current(run, item)
        if isinstance(current, Verdict):
            return current
        try:
            step = self._rules.step(current, wanted)
        except LookupError as error:
            return reject(f"key {item.key!r}: {error.args[0]}")
        if step is Step.NEXT or (step is Step.EARLY and self._early == "run"):
            run.notes[self][item] = (current, wanted)  # the handler may change the payload
            return self._prints.may_run(run, item)
        if step is Step.SAME:
            return self._prints.same(run, item, wanted)
        return self._refuse(run, item, step, current, wanted)

    def record(self, run: Run, item: Item) -> None:
        """Let the key's next item see the state that this item reached."""
        if item.verdict is PROCEED:
            current, wanted = run.notes[self][item]
            self._store.change(run, item, wanted)
            self._timeouts.moved(run, item, current, wanted)
            self._prints.took(run, item, wanted)
            if self.parks:
                run.wake[item.key] = None

    def write(self, run: Run) -> None:
        """Write the states that handlers can read."""
        self._store.write(run)

    def save(self, run: Run) -> None:
        """Write the states."""
        self._store.save(run)
        self._prints.save(run)
        self._timeouts.save(run)

    def committed(self, run: Run) -> None:
        """Warn about messages that have waited too long."""
        self._gaps.alert(run)

    def _refuse(self, run: Run, item: Item, step: Step, current: str | None, wanted: str) -> Verdict:
        if step is Step.LATE:
            return stale(f"{wanted} came late: the state is {current}")
        if step is Step.ENDED:
            return stale(f"{wanted} came after the end: {current} is final")
        if step is Step.IMPOSSIBLE:
            return reject(f"no transition leads from {current or 'the beginning'} to {wanted}")
        why = f"{wanted} came early: the state is {current or 'none yet'}"
        if self._early == "park":
            return self._gaps.wait(run, item, None, why)
        return self._gaps.put_off(run, item, why) if self._early == "retry" else reject(why)


def _rules(given: Options) -> Rules:
    if given.has("states") == given.has("transitions"):
        given.refuse(
            "say either `states` in their order, or `transitions`", "states: [created, paid, shipped]"
        )
    if given.has("states"):
        if given.has("initial"):
            given.refuse("an ordered list begins with its first state", "leave `initial` out", name="initial")
        if given.has("final"):
            given.refuse("an ordered list ends with its last state", "leave `final` out", name="final")
        return OrderedStates(given.names("states"))
    followers: dict[str, list[str]] = {}
    for state, targets in given.mapping("transitions").items():
        listed = [targets] if isinstance(targets, str) else targets or []
        if not isinstance(listed, list) or not all(isinstance(target, str) for target in listed):
            given.refuse(
                f"{state!r} must list the states that may follow, not {targets!r}", name="transitions"
            )
        followers[state] = listed
    targets_of_others = {
        target for state, listed in followers.items() for target in listed if target != state
    }
    initial = (
        given.names("initial")
        if given.has("initial")
        else [s for s in followers if s not in targets_of_others]
    )
    if not initial:
        given.refuse(
            "every state follows another, so it is not clear where an entity begins",
            "add `initial: [created]`",
            name="initial",
        )
    return Transitions(followers, initial, _final(given, followers, initial))


def _final(given: Options, followers: Mapping[str, Sequence[str]], initial: Sequence[str]) -> Sequence[str]:
    """Return the states that end an entity; none by default."""
    if not given.has("final"):
        return ()
    final = given.names("final")
    known = dict.fromkeys(
        [*initial, *followers, *(target for listed in followers.values() for target in listed)]
    )
    for state in final:
        if state not in known:
            given.refuse(
                f"{state!r} is none of the states{did_you_mean(state, list(known))}",
                "name states of `transitions`",
                name="final",
            )
        if followers.get(state):
            given.refuse(
                f"{state!r} is final, and {', '.join(followers[state])} may follow it",
                "leave it out of `final`, or take its followers away",
                name="final",
            )
    return final


def _no_skip(rules: Rules) -> str:
    """Return the advice instead of skipping the states between: only the listed transitions are allowed."""
    others = "`on_gap: dead_letter` or `alert`"
    if isinstance(rules, OrderedStates):
        return f"write `early: run` if an entity may skip states, else {others}"
    return f"add a way past the state to `transitions` if an entity may go on without it, else write {others}"


def _store(given: Options, scope: Scope) -> _Store:
    if not given.has("entity"):
        return LedgerStates(scope.clock)
    entity, (column,) = entity_of(given, "state_machine", scope, "state")
    return EntityStates(scope, entity, column)
