"""Writes an operator's changes into the app's audit trail: with the change, or before and after one that a broker makes."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import attrgetter

from sqlalchemy import Connection

from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.records import audit
from oncemq.ledger.records.audit import DONE, FAILED, Change, caller
from oncemq.operate import databases

NO_LEDGER = "the app has no database: this change is in no audit trail"

Keys = Mapping[str, int]
"""How many messages of each business key a change is about; the key is empty where there is none."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The person who makes a change.

    Args:
        who: their name; the login name and host of this process unless given.
        why: the reason; may be empty.
    """

    who: str = field(default_factory=caller)
    why: str = ""


@dataclass(slots=True)
class Step:
    """A change that has been requested.

    Args:
        keys: how many messages of each key it is about.
        count: how many of them were changed; the work sets it.
    """

    keys: Keys
    count: int | None = None

    def of(self, key: str) -> int | None:
        """Return how many messages of a key were changed; None where that cannot be told from the sum."""
        if len(self.keys) == 1 or not self.count:
            return self.count
        return self.keys[key] if self.count == sum(self.keys.values()) else None


class Trail:
    """The audit trail of one command.

    Args:
        plan: the app.
        operator: who and why.
        action: the command, such as `outbox drop`.
        tell: receives the sentence that there is no trail; None = it is not said.
    """

    def __init__(
        self, plan: AppPlan, operator: Operator, action: str, tell: Callable[[str], None] | None = None
    ) -> None:
        self._plan = plan
        self._operator = operator
        self._action = action
        self._scopes = {consumer.scope for consumer in plan.consumers}
        if plan.engine is None:
            if tell is not None:
                tell(NO_LEDGER)
        else:
            databases.prove(plan)

    @contextmanager
    def step(self, scope: str, keys: Keys, target: str) -> Generator[Step]:
        """Store what is requested, then, after the work inside, what came of it: `done`, or `failed` if it raised.

        Args:
            scope: the consumer's ledger scope; the app's name where none is meant.
            keys: how many messages of each key.
            target: the selection, for people.
        """
        step, engine = Step(keys), self._plan.engine
        if engine is None:
            yield step
            return
        with engine.begin() as connection:
            numbers = audit.request(connection, [self._change(scope, key, target) for key in keys])
        state = FAILED
        try:
            yield step
            state = DONE
        finally:
            counts = {number: step.of(key) for number, key in zip(numbers, keys, strict=True)}
            with engine.begin() as connection:
                audit.settle(connection, state, counts)

    def note(
        self, connection: Connection, scope: str, keys: Keys, target: str, count: int | None = None
    ) -> None:
        """Store a change in the transaction that makes it.

        Args:
            connection: the transaction.
            scope: the ledger scope of the consumer; of any other name the app's is taken.
            keys: how many messages of each key.
            target: the selection, for people.
            count: how many rows, where no key is meant.
        """
        changes = [self._change(scope, key, target, number) for key, number in keys.items()]
        audit.add(connection, changes or [self._change(scope, "", target, count)])

    def noted(self, target: str, count: int | None = None, scope: str = "") -> None:
        """Store a change of the app, or of a consumer, that has been made, in a transaction of its own."""
        if self._plan.engine is not None:
            with self._plan.engine.begin() as connection:
                self.note(connection, scope, {}, target, count)

    def _change(self, scope: str, key: str, target: str, count: int | None = None) -> Change:
        return Change(
            app=self._plan.name,
            consumer=scope if scope in self._scopes else self._plan.name,
            action=self._action,
            who=self._operator.who,
            why=self._operator.why,
            key=key,
            target=target,
            affected=count,
        )


def selection(everything: str = "all", **chosen: object) -> str:
    """Return a selection for people: `id 3, 4 · reason rejected`; `everything` where nothing restricts it."""
    parts = [f"{name} {_listed(value)}" for name, value in chosen.items() if value]
    return " · ".join(parts) or everything


def _listed(value: object) -> str:
    if isinstance(value, (frozenset, set, tuple, list)):
        first = list(islice(sorted(map(str, value)), 20))
        more = len(value) - len(first)
        return ", ".join(first) + (f" and {more} more" if more else "")
    return str(value)


def changes(
    plan: AppPlan,
    limit: int,
    *,
    consumer: str | None = None,
    key: str | None = None,
    since: datetime | None = None,
) -> list[Change]:
    """Return the latest changes of an app in all its databases, newest first.

    Args:
        plan: the app.
        limit: the most changes.
        consumer: the ledger scope; None = every one.
        key: the business key; None = every one.
        since: aware; only from then on.
    """
    found: list[Change] = []
    for engine in plan.engines:
        schema.ensure(engine)
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            found += audit.latest(connection, plan.name, limit, consumer=consumer, key=key, since=since)
    if len(plan.engines) > 1:
        found.sort(key=attrgetter("at"), reverse=True)
    return found[:limit]


def tally(keys: Iterable[str | None]) -> Keys:
    """Return how often each key occurs; no key counts as the empty one."""
    return Counter(key or "" for key in keys)


def by_scope(rows: Sequence[tuple[str, str]]) -> Mapping[str, Keys]:
    """Return the keys of rows by their scope, each row being a scope and a key."""
    found: dict[str, Counter[str]] = {}
    for scope, key in rows:
        found.setdefault(scope, Counter())[key] += 1
    return found
