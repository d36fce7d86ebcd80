"""Ledger of requests: the first one runs a request, the next one when the lease of the first is over."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, Engine, exc

from oncemq.common.clock import Clock, SystemClock
from oncemq.engine.transaction.connection_watch import install
from oncemq.errors import InfrastructureError, OutcomeUnknown, RequestConflict, RequestInProgress
from oncemq.idempotent_requests.answer import (
    NOT_DONE,
    REFUSE,
    RUN_AGAIN,
    Answer,
    Recovery,
    Verify,
    from_record,
    stored_headers,
)
from oncemq.idempotent_requests.housekeeping import Housekeeping, best_effort
from oncemq.idempotent_requests.safety_checks import check_ledger, plain_engine
from oncemq.ledger import schema
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.probe import explain
from oncemq.ledger.database.server_clock import LedgerClock
from oncemq.ledger.purge import REQUESTS, purge
from oncemq.ledger.records import requests
from oncemq.ledger.records.requests import Record, State
from oncemq.message.canonical import is_canonical
from oncemq.upkeep.purging import Purger, purge_task

_LOOKS = 5
"""Reads of a concurrently changing request before it counts as in progress."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a request until a lease ends.

    Args:
        identity: of the request.
        owner: our unique token.
    """

    identity: str
    owner: bytes


class RequestLedger:
    """Remembers requests and their answers in a database, for middleware and decorators.

    One per app and process is enough; it is thread-safe.

    Args:
        database: a URL, or the app's own engine on PostgreSQL, MariaDB, MySQL or an SQLite file.
        name: name of the app's requests; two apps on one database need two names.
        keep: how long an answer is kept. A later copy of the request runs again – also
            one whose outcome is still unknown by then.
        lease: how long a request may take. After a crash its key is refused as "in progress" for so long.
        clock: the time source.

    Raises:
        ConfigError: these values are unsafe.
    """

    def __init__(
        self,
        database: str | Engine,
        name: str,
        *,
        keep: timedelta = timedelta(days=1),
        lease: timedelta = timedelta(seconds=60),
        clock: Clock | None = None,
    ) -> None:
        self.engine = make_engine(database) if isinstance(database, str) else plain_engine(database)
        self.name = name
        self.keep, self.lease = keep, lease
        self.clock = clock or LedgerClock(SystemClock(), self.engine)
        check_ledger(self.engine, name, keep, lease)
        install(self.engine)
        purger = Purger((REQUESTS,), name, keep, self.clock)
        self._housekeeping = Housekeeping(
            self.engine, purge_task(f"purge requests {name}", purger), self.clock
        )

    def __repr__(self) -> str:
        return f"RequestLedger({self.name!r})"

    def create_tables(self) -> list[str]:
        """Create the ledger's missing tables; returns the names of those created."""
        return schema.create(self.engine)

    def purge(self) -> int:
        """Delete one batch of requests older than `keep`; returns how many. Runs by itself in the background."""
        before = self.clock.now() - self.keep
        return purge(self.engine, REQUESTS, before, keep=self.keep, scope=self.name)

    def close(self) -> None:
        """Stop the background work and close idle connections; the ledger may be used again."""
        self._housekeeping.stop()
        self.engine.dispose()

    def admit(
        self,
        identity: str,
        fingerprint: str,
        state: State,
        recovery: Recovery = REFUSE,
        *,
        earlier: Callable[[], str] | None = None,
    ) -> Claim | Answer:
        """Return the right to run a request, or its stored answer.

        Args:
            identity: of the request.
            fingerprint: of its content.
            state: of the request while it runs.
            recovery: policy for a request that ended without an answer.
            earlier: returns the fingerprint that earlier versions of OnceMQ kept for the same content.

        Raises:
            RequestConflict: the identity was used before, with another fingerprint.
            RequestInProgress: the request is running.
            OutcomeUnknown: a try with effects outside the database ended without an answer, and `recovery` does not decide.
            InfrastructureError: the database does not answer; nothing has been done.
            LedgerError: the tables are missing.
        """
        self._housekeeping.awake()
        try:
            return self._admit(identity, fingerprint, state, recovery, earlier)
        except exc.TimeoutError as error:
            raise InfrastructureError("every connection to the database is in use") from error
        except exc.DBAPIError as error:
            raise explain(error, self.engine) from error

    def finish(self, connection: Connection, claim: Claim, answer: Answer) -> bool:
        """Store the answer in a transaction; returns False if another owner has taken the request over."""
        return requests.finish(
            connection,
            self.name,
            claim.identity,
            owner=claim.owner,
            now=self.clock.now(),
            status=answer.status,
            headers=stored_headers(answer),
            body=answer.body,
        )

    def release(self, claim: Claim) -> None:
        """Delete a request that had no effect. If even that fails, its lease ends by itself."""
        with best_effort("releasing a request"), self.engine.begin() as connection:
            requests.release(connection, self.name, claim.identity, claim.owner)

    def give_up(self, claim: Claim) -> None:
        """Record that this request is no longer running, and that its effect may have happened."""
        with best_effort("giving up a request"), self.engine.begin() as connection:
            requests.end_lease(connection, self.name, claim.identity, claim.owner, self.clock.now())

    def _admit(
        self,
        identity: str,
        fingerprint: str,
        state: State,
        recovery: Recovery,
        earlier: Callable[[], str] | None,
    ) -> Claim | Answer:
        for _ in range(_LOOKS):
            record = self._find(identity)
            if record is None:
                claim = self._begin(identity, fingerprint, state)
                if claim is not None:
                    return claim
                continue
            if self._expired(identity, record):
                continue
            if record.fingerprint != fingerprint and not _same_as_earlier(record, earlier):
                raise RequestConflict(
                    "this key came before with other content: a new request needs a new key"
                )
            if record.state is State.DONE:
                return from_record(record)
            self._require_ended(record, state, recovery)
            claim = self._take_over(identity, record, state)
            if claim is not None and record.state is State.EXPOSED and callable(recovery):
                return self._verified(claim, recovery)
            if claim is not None:
                return claim
        raise RequestInProgress("this request is being carried out")

    def _require_ended(self, record: Record, state: State, recovery: Recovery) -> None:
        if record.until > self.clock.now():
            raise RequestInProgress("this request is being carried out")
        # A request that was exposed when its process died stays so, whatever the app's current setting.
        helpless = recovery is REFUSE or (state is State.RUNNING and recovery is not RUN_AGAIN)
        if record.state is State.EXPOSED and helpless:
            raise OutcomeUnknown(
                "an earlier try of this request ended without an answer: whether it took effect is not known"
            )

    def _verified(self, claim: Claim, verify: Verify) -> Claim | Answer:
        try:
            found = verify()
        except BaseException:
            self.give_up(claim)
            raise
        if found is NOT_DONE:
            return claim
        if not isinstance(found, Answer):
            self.give_up(claim)
            raise OutcomeUnknown("whether an earlier try of this request took effect cannot be told yet")
        with self.engine.begin() as connection:
            self.finish(connection, claim, found)
        return found

    def _find(self, identity: str) -> Record | None:
        with self.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            return requests.find(connection, self.name, identity)

    def _expired(self, identity: str, seen: Record) -> bool:
        """Return whether the request is older than `keep`, and is forgotten now; no purge is waited for."""
        before = self.clock.now() - self.keep
        if seen.changed_at >= before:
            return False
        with self.engine.begin() as connection:
            return requests.expire(connection, self.name, identity, seen=seen, before=before, keep=self.keep)

    def _begin(self, identity: str, fingerprint: str, state: State) -> Claim | None:
        owner, now = os.urandom(16), self.clock.now()
        with self.engine.begin() as connection:
            first = requests.begin(
                connection,
                self.name,
                identity,
                fingerprint=fingerprint,
                state=state,
                owner=owner,
                now=now,
                until=now + self.lease,
            )
        return Claim(identity, owner) if first else None

    def _take_over(self, identity: str, seen: Record, state: State) -> Claim | None:
        owner, now = os.urandom(16), self.clock.now()
        # During verification, an exposed request stays exposed.
        state = State.EXPOSED if seen.state is State.EXPOSED else state
        with self.engine.begin() as connection:
            ours = requests.take_over(
                connection,
                self.name,
                identity,
                seen=seen,
                state=state,
                owner=owner,
                now=now,
                until=now + self.lease,
            )
        return Claim(identity, owner) if ours else None


def _same_as_earlier(record: Record, earlier: Callable[[], str] | None) -> bool:
    """Return whether an earlier version stored this content; without an earlier fingerprint it is other content."""
    return earlier is not None and not is_canonical(record.fingerprint) and record.fingerprint == earlier()
