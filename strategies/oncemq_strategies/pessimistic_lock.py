"""`pessimistic_lock`: the rows that messages are about are locked before the handlers run, and passed to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, MetaData, Row, Table, inspect
from sqlalchemy.orm import Mapper, Session, object_session

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Outcome, Verdict, defer
from oncemq.errors import Reject, Retry
from oncemq.ledger.database.user_tables import UnfitTable, check_name
from oncemq.ledger.records import row_mutexes as locked_rows
from oncemq.ledger.sql.row_locks import Rival, RowLock
from oncemq.ledger.sql.tables import attach
from oncemq_strategies.common.entity_rows import Entity, EntityRows, Found, Target, missing_policy
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.table_lookup import LookedUp

_PAUSE = timedelta(milliseconds=100)
"""Delay before a message whose row was locked is tried again."""


class _Notes:
    """State of one run.

    Attributes:
        found: the locked rows.
        written: number of handlers' statements that may have changed rows, at the last read.
        used: keys' values whose row a handler has received; the next handler must see its current state.
    """

    __slots__ = ("found", "used", "written")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.written = 0
        self.used: set[Any] = set()


class PessimisticLock(Strategy):
    """Only guards: another strategy of the list remembers applied messages.

    Options:

    - `model: "models:Ride"`: a mapped class; the handler receives the object as its parameter of type `Ride`. Its `key:`
      is the primary key, or the unique column named so. Or
    - `table: rides` with `key: ride_id`: the handler receives a `sqlalchemy.Row` as its parameter of that type.
    - `locked: wait` (default), for at most `timeout: 2s` (default: the time limit of every statement; whole
      seconds on MySQL and MariaDB); `nowait`: the unit is run again after a pause; or `skip`: its neighbours
      run, the message is tried again, and no attempt is charged. SQLite has no row locks: the
      transaction itself waits for its turn.
    - `missing: run` (default; `insert` is a synonym): a mutex is held instead of the row, the handler receives None
      and may insert it; `retry` or `reject`. With `skip`, MySQL and MariaDB wait for that mutex.
    """

    traits: ClassVar[Traits] = Traits(decides=False, per_consumer=True)

    def __init__(self, scope: Scope, entity: Entity, model: type | None, lock: RowLock) -> None:
        self._entity = entity
        self._model = model
        self._lock = lock
        self._target = LookedUp(
            scope, entity.table, entity.where, lambda connection: _look(connection, scope, entity, model)
        )
        self._rows = EntityRows(scope, entity, self._target.get)

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("pessimistic_lock", options, scope)
        given.known("model", "table", "key", "locked", "timeout", "missing")
        if given.has("model") == given.has("table"):
            given.refuse(
                "say either which `model` is locked, or which `table`", 'model: "models:Ride"', name="model"
            )
        rival = Rival(given.choice("locked", [choice.value for choice in Rival], Rival.WAIT))
        timeout = given.duration("timeout")
        if timeout is not None and rival is not Rival.WAIT:
            given.refuse(f"`locked: {rival}` does not wait", "leave `timeout` out", name="timeout")
        if timeout is not None and timeout <= timedelta(0):
            given.refuse("the time-out is zero", "write `locked: nowait`", name="timeout")
        model = _model(given) if given.has("model") else None
        entity = _entity(given, model)
        return cls(scope, entity, model, RowLock(rival, timeout, of=model))

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if not facts.dialect:
            yield Problem("pessimistic_lock needs a database", "give the app a `database`", "strategies")
        yield from self._target.check()

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of mutexes."""
        return (attach(locked_rows.TABLE, metadata),)

    def provides(self) -> Mapping[type, Callable[[Run, Item], Any]]:
        """Return the locked row, as an object of the mapped class or as a row."""
        return {self._model or Row: self._give}

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock the row of every key, in key order."""
        run.notes[self] = _Notes(self._rows.find(run, items, self._lock))

    def decide(self, run: Run, item: Item) -> Verdict:
        """Let an item run whose row or mutex is held."""
        found = run.notes[self].found
        unfit: Verdict | None = found.unfit(self._target.get(run.connection), item)
        if unfit is not None:
            return unfit
        value = found.values[item]
        if value in found.taken:
            return defer(_PAUSE, f"another transaction holds the row of key {item.key!r}")
        if value in found.rows or self._entity.missing == "run":
            return PROCEED
        return self._entity.absent(item)

    def record(self, run: Run, item: Item) -> None:
        """Forget a row whose handler ran: it was passed on, and the strategies may change its columns."""
        if item.verdict is PROCEED:
            notes: _Notes = run.notes[self]
            value = notes.found.values.get(item)
            notes.found.rows.pop(value, None)
            notes.used.add(value)

    def _give(self, run: Run, item: Item) -> Any:
        """Return the locked row or object of this item; None for a row that its handler is to insert.

        Raises:
            Signal: an earlier message of the same unit deleted the row.
        """
        notes: _Notes = run.notes[self]
        value = notes.found.values[item]
        if run.written != notes.written or value in notes.used or value not in notes.found.rows:
            self._read_again(run, notes, value)
            why = notes.found.respelled(self._target.get(run.connection), item)
            if why:
                raise Reject(why)
        row = notes.found.rows.get(value)
        if row is not None:
            return row if self._model is None else _handed_over(row[1], run.session)
        if self._entity.missing != "run":
            verdict = self._entity.absent(item)
            raise Retry(verdict.reason) if verdict.outcome is Outcome.RETRY else Reject(verdict.reason)
        return None

    def _read_again(self, run: Run, notes: _Notes, value: Any) -> None:
        target = self._target.get(run.connection)
        if run.written != notes.written:
            # Any row may have changed since it was read.
            notes.found.rows.clear()
            notes.written = run.written
        notes.found.rows.pop(value, None)
        notes.found.read(target, [value], self._lock, run.session, run.connection)


def _handed_over(entity: Any, session: Session) -> Any:
    """Return an object that was read for all messages together as if the handler's own session had read it."""
    before = object_session(entity)
    if before is not session:
        if before is not None:
            before.expunge(entity)
        session.add(entity)
    return entity


def _look(connection: Connection, scope: Scope, entity: Entity, model: type | None) -> Target:
    if model is None:
        return Target.look(connection, scope, entity, None)
    return Target(connection, _table_of(model), entity.key, (), model)


def _model(given: Options) -> type:
    """Return the mapped class that the option `model` names."""
    found = given.imported("model")
    mapper = inspect(found, raiseerr=False)
    if not isinstance(mapper, Mapper) or not isinstance(mapper.local_table, Table):
        given.refuse(
            f"{found!r} is not a class that SQLAlchemy maps to a table", 'model: "models:Ride"', name="model"
        )
    kind: type = mapper.class_
    return kind


def _table_of(model: type) -> Table:
    table: Table = inspect(model).local_table
    return table


def _key_of(given: Options, model: type) -> str:
    columns = list(_table_of(model).primary_key)
    if len(columns) != 1:
        given.refuse(
            f"{model.__name__} has {len(columns)} columns in its primary key",
            "write `key:` with the unique column that holds a message's key",
            name="key",
        )
    return columns[0].key


def _entity(given: Options, model: type | None) -> Entity:
    named = given.has("key") or model is None
    try:
        return Entity(
            table=_table_of(model).fullname if model else check_name(given.text("table"), qualified=True),
            key=check_name(given.text("key")) if named or model is None else _key_of(given, model),
            missing=missing_policy(given),
            where="pessimistic_lock",
        )
    except UnfitTable as error:
        given.refuse(str(error))
