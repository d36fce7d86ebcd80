"""Claims on effects outside the database: current owner, end of the lease, and result.

    (no row) ── take ──▶ PROCESSING ── finish ──▶ DONE
        ▲                  │  │ ▲ └── doubt ──▶ UNKNOWN ─┐
        └──── drop ────────┘  │ └─ prove undone ─┐       │ take over
                              └── lease over ──▶ VERIFYING, of another owner ── finish ──▶ DONE
                                                 └── doubt ──▶ UNKNOWN

PROCESSING and VERIFYING hold until their lease expires; the owner renews it. Every transition compares the owner
in SQL, so an owner that lost a claim can neither finish nor delete it. Only claims that are DONE expire by age.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Index,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    text,
    update,
)

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql.bulk import Bulk, Row, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, Token, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table


class State(StrEnum):
    """Progress of a claim."""

    PROCESSING = "processing"
    """Its owner's handler is about to run, or running."""
    VERIFYING = "verifying"
    """A previous owner's handler may have run; this owner is verifying it."""
    UNKNOWN = "unknown"
    """A handler may have run, and the claim has no active owner."""
    DONE = "done"


HELD = (State.PROCESSING, State.VERIFYING)


@dataclass(frozen=True, slots=True)
class Claim:
    """The ledger's record of one identity.

    Args:
        identity: of the message.
        key: of the message.
        state: the claim's progress.
        holder: the token of the current or last owner.
        until: when the lease expires, or when an unknown claim is verified again; None when done.
        fingerprint: of the content, if it is compared.
        result: what the handler returned, as JSON.
        reason: why it is unknown.
        envelope: the message, from `oncemq.message.stored`; None when done.
    """

    identity: str
    key: str
    state: State
    holder: str
    until: datetime | None
    fingerprint: str | None
    result: str | None
    reason: str | None
    envelope: str | None

    def live(self, now: datetime) -> bool:
        """Return whether the claim has an active owner, by its lease."""
        return self.state in HELD and self.until is not None and self.until > now


class NewClaim(NamedTuple):
    """A claim that an owner requests.

    Args:
        identity: of the message.
        key: of the message.
        owner: the token.
        envelope: the message, from `oncemq.message.stored`.
    """

    identity: str
    key: str
    owner: str
    envelope: str


class End(NamedTuple):
    """An effect that has happened.

    Args:
        identity: of the message.
        owner: the token.
        result: what the handler returned, as JSON.
        fingerprint: of the content, if it is compared.
        also: called in the transaction if the claim is ours and was not recorded as done before.
    """

    identity: str
    owner: str
    result: str | None = None
    fingerprint: str | None = None
    also: Callable[[Connection], object] | None = None


FINGERPRINT_SIZE = 64
_OWNER_SIZE = 64
_STATE_SIZE = 16

TABLE = ledger_table(
    "claims",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("identity", ExactText(KEY_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("state", ExactText(_STATE_SIZE), nullable=False),
    Column("holder", ExactText(_OWNER_SIZE), nullable=False),
    # PROCESSING, VERIFYING: end of the lease. UNKNOWN: time of the next verification. DONE: null.
    Column("until", Moment),
    Column("done_at", Moment),
    Column("fingerprint", ExactText(FINGERPRINT_SIZE)),
    Column("result", LongText),
    Column("reason", LongText),
    Column("envelope", LongText),  # until it is done; after that it is not verified any more
    Column("owner", Token),  # the inserting owner, if the database cannot return which rows were new
    Index("oncemq_claims_age", "consumer", "done_at"),
    Index("oncemq_claims_until", "consumer", "until"),
)

_SHAPE = Shape(TABLE, "identity", "until", inserted=("key", "state", "holder", "envelope"))


_COLUMNS = [TABLE.c[name] for name in Claim.__dataclass_fields__]


class Claims:
    """The claims of one consumer.

    Args:
        consumer: the ledger scope.
    """

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._bulk: Bulk | None = None

    def take(self, connection: Connection, new: Iterable[NewClaim], until: datetime) -> set[str]:
        """Claim identities that have no claim; returns them. Waits for uncommitted claims of others.

        Args:
            connection: the transaction.
            new: sorted by identity, each once.
            until: when the lease expires.
        """
        if self._bulk is None:
            self._bulk = bulk_for(connection.dialect, _SHAPE)
        rows: list[Row] = [
            (claim.identity, claim.key, State.PROCESSING, claim.owner, claim.envelope) for claim in new
        ]
        return self._bulk.insert_new(connection, self._consumer, rows, until)

    def read(self, connection: Connection, identities: Collection[str]) -> dict[str, Claim]:
        """Return the existing claims on these identities."""
        found = connection.execute(select(*_COLUMNS).where(self._of(identities)))
        return {row.identity: _claim(row) for row in found}

    def take_over(self, connection: Connection, seen: Claim, owner: str, until: datetime) -> bool:
        """Begin to verify a claim without an active owner; returns whether it was unchanged since `seen`."""
        over = or_(TABLE.c.state == State.UNKNOWN.value, _over(connection))
        unchanged = and_(
            over,
            TABLE.c.state == seen.state.value,
            TABLE.c.holder == seen.holder,
            TABLE.c.until.is_(None) if seen.until is None else TABLE.c.until == seen.until,
        )
        changes = {"state": State.VERIFYING.value, "holder": owner, "until": until}
        return self._set(connection, seen.identity, unchanged, changes)

    def prove_undone(self, connection: Connection, identity: str, owner: str, until: datetime) -> bool:
        """Let the handler run after all; returns whether we were verifying the claim."""
        ours = and_(TABLE.c.holder == owner, TABLE.c.state == State.VERIFYING.value)
        return self._set(connection, identity, ours, {"state": State.PROCESSING.value, "until": until})

    def finish(self, connection: Connection, ends: Sequence[End], now: datetime) -> list[bool]:
        """Record effects as done; returns for each whether the claim was ours, also if it was recorded before."""
        in_order = sorted(ends, key=lambda end: end.identity)
        if self._finish_all(connection, in_order, now) == len(ends):
            return [True] * len(ends)
        found = self.read(connection, [end.identity for end in ends])
        claims = [found.get(end.identity) for end in ends]
        return [
            claim is not None and claim.state is State.DONE and claim.holder == end.owner
            for claim, end in zip(claims, ends, strict=True)
        ]

    def _finish_all(self, connection: Connection, ends: Sequence[End], now: datetime) -> int:
        """Return how many were ours and not recorded before; sorted, so that processes lock the rows in one order."""
        if not any(end.also for end in ends):
            if connection.dialect.name == "postgresql":
                return self._finish_at_once(connection, ends, now)
            rows = [self._finished(end, now) for end in ends]
            return connection.execute(_FINISH, rows).rowcount if rows else 0
        finished = 0
        for end in ends:
            if connection.execute(_FINISH, self._finished(end, now)).rowcount == 1:
                finished += 1
                if end.also is not None:
                    end.also(connection)
        return finished

    def _finish_at_once(self, connection: Connection, ends: Sequence[End], now: datetime) -> int:
        columns = {f"c{number}": [end[number] for end in ends] for number in range(4)}
        return connection.execute(_FINISH_ALL, {"scope": self._consumer, "at": now, **columns}).rowcount

    def _finished(self, end: End, now: datetime) -> dict[str, Any]:
        return {
            "scope": self._consumer,
            "one": end.identity,
            "token": end.owner,
            "at": now,
            "came_of_it": end.result,
            "print": end.fingerprint,
        }

    def doubt(
        self,
        connection: Connection,
        identity: str,
        owner: str,
        ask_at: datetime,
        *,
        reason: str,
        fingerprint: str | None = None,
    ) -> bool:
        """Record that the effect may have happened; returns whether the claim was ours.

        Args:
            connection: the transaction.
            identity: of the message.
            owner: the token.
            ask_at: when the background may verify it; a worker that receives the message verifies at once.
            reason: why the outcome is unknown.
            fingerprint: of the content, if it is compared; None keeps the stored one.
        """
        changes: dict[str, Any] = {
            "state": State.UNKNOWN.value,
            "until": ask_at,
            "reason": storable(reason),
        }
        if fingerprint is not None:
            changes["fingerprint"] = fingerprint
        return self._set(connection, identity, _held_by(owner), changes)

    def drop(
        self,
        connection: Connection,
        identities: Collection[str],
        owner: str,
        state: State = State.PROCESSING,
    ) -> None:
        """Delete our claims in this state: their effect has certainly not happened.

        A claim under verification is deleted only by the owner that has the answer: `state=VERIFYING`.
        """
        ours = and_(TABLE.c.holder == owner, TABLE.c.state == state.value)
        connection.execute(delete(TABLE).where(self._of(identities), ours))

    def renew(self, connection: Connection, owners: Collection[str], until: datetime) -> None:
        """Extend the leases of all claims of these owners."""
        held = [state.value for state in HELD]
        ours = and_(
            TABLE.c.consumer == self._consumer,
            TABLE.c.until.is_not(None),
            TABLE.c.holder.in_(sorted(owners)),
            TABLE.c.state.in_(held),
        )
        connection.execute(update(TABLE).where(ours).values(until=until))

    def stuck(
        self, connection: Connection, now: datetime, *, after: str, limit: int, everything: bool
    ) -> Sequence[Claim]:
        """Return claims without an active owner, sorted by identity.

        Args:
            connection: reads only.
            now: leases that ended before have expired.
            after: only identities greater than this, to continue after the last call.
            limit: maximum of claims.
            everything: include unknown claims that were verified recently.
        """
        chosen = _in_doubt(connection, now) if everything else _abandoned(connection, now)
        found = (
            select(*_COLUMNS)
            .where(TABLE.c.consumer == self._consumer, chosen, TABLE.c.identity > after)
            .order_by(TABLE.c.identity)
            .limit(limit)
        )
        return [_claim(row) for row in connection.execute(found)]

    def _set(
        self, connection: Connection, identity: str, condition: ColumnElement[bool], changes: dict[str, Any]
    ) -> bool:
        statement = update(TABLE).where(self._of([identity]), condition).values(**changes)
        return connection.execute(statement).rowcount == 1

    def _of(self, identities: Collection[str]) -> ColumnElement[bool]:
        return and_(TABLE.c.consumer == self._consumer, TABLE.c.identity.in_(sorted(identities)))


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the claims on a key, of every consumer."""
    names = ("consumer", "identity", "state", "until", "done_at", "result", "reason")
    found = select(*(TABLE.c[name] for name in names)).where(TABLE.c.key == key).order_by(TABLE.c.identity)
    return [dict(row) for row in connection.execute(found).mappings()]


def listed_in_doubt(
    connection: Connection, consumer: str, now: datetime, limit: int
) -> list[dict[str, object]]:
    """Return the claims that `count_in_doubt` counts, the longest waiting first."""
    names = ("key", "identity", "state", "until", "reason")
    found = select(*(TABLE.c[name] for name in names)).where(
        TABLE.c.consumer == consumer, _in_doubt(connection, now)
    )
    found = found.order_by(TABLE.c.until, TABLE.c.identity).limit(limit)
    return [dict(row) for row in connection.execute(found).mappings()]


def count_in_doubt(connection: Connection, consumer: str, now: datetime) -> int:
    """Return how many effects of a consumer may or may not have happened: their owner said so, or has not finished in time.

    Args:
        connection: reads only.
        consumer: the consumer's ledger scope.
        now: leases that ended before have expired.
    """
    found = select(func.count()).where(TABLE.c.consumer == consumer, _in_doubt(connection, now))
    return int(connection.execute(found).scalar_one())


def _abandoned(connection: Connection, now: datetime) -> ColumnElement[bool]:
    """Return whether a lease has expired, or the pause after which an unknown claim is verified again."""
    return and_(TABLE.c.until.is_not(None), TABLE.c.until < now, _over(connection))


def _in_doubt(connection: Connection, now: datetime) -> ColumnElement[bool]:
    return or_(_abandoned(connection, now), TABLE.c.state == State.UNKNOWN.value)


def _over(connection: Connection) -> ColumnElement[bool]:
    """Return whether a lease has expired by the database's clock: a process whose own is ahead takes nothing early."""
    return TABLE.c.until <= server_moment(connection.dialect)


def _held_by(owner: str | BindParameter[str]) -> ColumnElement[bool]:
    return and_(TABLE.c.holder == owner, or_(*(TABLE.c.state == state.value for state in HELD)))


def _claim(row: Any) -> Claim:
    fields: dict[str, Any] = dict(row._mapping)
    return Claim(**{**fields, "state": State(row.state)})


_FINISH = (
    update(TABLE)
    .where(TABLE.c.consumer == bindparam("scope"), TABLE.c.identity == bindparam("one"))
    .where(_held_by(bindparam("token")))
    .values(
        state=State.DONE.value,
        until=None,
        done_at=bindparam("at"),
        result=bindparam("came_of_it"),
        fingerprint=bindparam("print"),
        reason=None,
        envelope=None,
    )
)

_FINISH_ALL = text(
    "UPDATE oncemq_claims AS t SET state = 'done', until = NULL, done_at = :at, result = r.c2, fingerprint = r.c3,"
    " reason = NULL, envelope = NULL"
    " FROM unnest(CAST(:c0 AS text[]), CAST(:c1 AS text[]), CAST(:c2 AS text[]), CAST(:c3 AS text[])) AS r(c0, c1, c2, c3)"
    " WHERE t.consumer = :scope AND t.identity = r.c0 AND t.holder = r.c1 AND t.state IN ('processing', 'verifying')"
).bindparams(bindparam("at", type_=Moment()))
