"""`two_phase`: for effects outside the database – a committed claim first, then the work, then `done`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

from sqlalchemy import Engine, MetaData, Table

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Reconciled, Scope, UpkeepTask
from oncemq.contracts.verdict import DUPLICATE_IN_DATABASE
from oncemq.contracts.verification import Answer
from oncemq.ledger.records import claims
from oncemq.ledger.sql.tables import attach
from oncemq_strategies.claims.base import Claiming
from oncemq_strategies.claims.lease_renewal import ledger_keeper
from oncemq_strategies.claims.ledger_claims import ClaimBook
from oncemq_strategies.claims.options import lease_option, verify_option
from oncemq_strategies.claims.reconcile import Reconciler
from oncemq_strategies.claims.stored_messages import check_messages
from oncemq_strategies.claims.verify import Asker
from oncemq_strategies.common.fingerprint import Fingerprint, fingerprint_option
from oncemq_strategies.common.options import Options

_LONG_LEASE = timedelta(hours=1)
_RECONCILE_EVERY = timedelta(seconds=30)


class TwoPhase(Claiming):
    """Runs a handler whose effect cannot be rolled back once, unless `verify` says that it did nothing.

    Options, all optional:

    - `verify: "module:function"`: called with the Envelope when a handler was interrupted or failed, so that its
      outcome is unknown; returns `Done(result)`, `NotDone` or `Unknown`. Without it, and after `Unknown`, the message
      becomes a dead letter for an operator to look at. With it, claims and outcomes of many messages are written at
      once: it is asked about all that a dead process had claimed and not recorded as done.
    - `lease: 60s`: how long a dead process's claim is respected. A live one renews its claims.
    - `fingerprint: [body.amount, …]`: the same identity with other content is a Conflict.

    Messages published by the handler are stored with the end of its claim. A `verify` that returns Done publishes them:
    `def verify(envelope: Envelope, publisher: Publisher)`; without that parameter such a handler is refused.

    The handler's result is kept as JSON (at most 64 KiB) and given to a duplicate. `raise Retry` and `raise Reject`
    mean that nothing happened; any other exception leaves the claim unknown until `verify` answers.
    """

    stores_outgoing = True
    _duplicate = DUPLICATE_IN_DATABASE

    def __init__(self, scope: Scope, asker: Asker, lease: timedelta, fingerprint: Fingerprint | None) -> None:
        self._scope, self._consumer = scope, scope.consumer
        self._asker = asker
        self.ends_together = asker.can_ask
        self._lease = lease
        self._fingerprint = fingerprint
        if scope.engine is not None:
            ledger = claims.Claims(scope.consumer)
            self._ledger_book = ClaimBook(scope.engine, ledger, lease, scope.clock)
            self._book = self._ledger_book
            self._keeper = ledger_keeper(scope.engine, ledger, lease, scope.clock)

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("two_phase", options, scope)
        given.known("verify", "lease", "fingerprint")
        asker = Asker(verify_option(given), scope.publishers)
        return cls(scope, asker, lease_option(given), fingerprint_option(given))

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if not facts.dialect:
            yield Problem(
                "two_phase keeps its claims in a database", "give the app a `database`", "strategies"
            )
        yield from check_messages("two_phase", self._asker, facts)
        if not self._asker.can_ask:
            yield Problem(
                "two_phase without `verify`: when a handler fails or its process dies, it is not known whether its "
                "effect happened, so the message is not tried again but becomes a dead letter",
                'write two_phase: {verify: "module:function"}, which returns Done, NotDone or Unknown',
                "strategies",
                Severity.WARNING,
            )
        if self._lease > _LONG_LEASE:
            yield Problem(
                f"after a crash a message waits for the end of its claim's lease, {format_duration(self._lease)}",
                "claims of living processes are renewed, so a minute is enough for handlers of any length",
                "strategies",
                Severity.WARNING,
            )

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of claims."""
        return (attach(claims.TABLE, metadata),)

    def upkeep(self) -> Sequence[UpkeepTask]:
        """Return the task that verifies abandoned claims."""
        if not self._asker.can_ask:
            return ()
        reconciler = self._reconciler()
        return (UpkeepTask(f"reconcile {self._consumer}", _RECONCILE_EVERY, lambda _: reconciler.step()),)

    def reconcile(
        self, engine: Engine, *, identity: str | None = None, answer: Answer | None = None
    ) -> Iterator[Reconciled]:
        """Verify every abandoned claim, or settle one as an operator says."""
        del engine
        return self._reconciler().all(identity, answer)

    def _reconciler(self) -> Reconciler:
        return Reconciler(self._scope, self._ledger_book, self._keeper, self._asker)
