"""`two_phase`: for effects outside the database – a committed claim first, then the work, then `done`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import Engine, MetaData, Table

from oncemq.durations import format_duration
from oncemq.errors import MessageRefused, OnceMQError, Retry, Signal
from oncemq.facts import ConsumerFacts, Problem, Severity, UnitKind
from oncemq.ledger import claims
from oncemq.ledger.tables import attach
from oncemq.strategy import Reconciled, Scope, Strategy, Traits, UpkeepTask
from oncemq.unit import Item, Run, Unit
from oncemq.verdict import DUPLICATE, PROCEED, Outcome, Verdict, conflict, defer, reject, retry
from oncemq.verification import Answer, Done, NotDone
from oncemq_strategies.asking import Asker, Unanswered
from oncemq_strategies.claim_book import ClaimBook, Held, Phase
from oncemq_strategies.claim_keeper import ClaimKeeper
from oncemq_strategies.fingerprint import Fingerprint, fingerprint_of
from oncemq_strategies.options import Options
from oncemq_strategies.reconciling import Reconciler
from oncemq_strategies.results import stored, stored_or_none

UNKNOWN_EFFECT = "unknown-effect"
"""The dead letter's reason when nobody can say whether a message took effect."""

DEFAULT_LEASE = timedelta(seconds=60)
_SHORTEST_LEASE = timedelta(seconds=1)
_LONG_LEASE = timedelta(hours=1)
_LOOK_AGAIN = timedelta(milliseconds=250)
"""How long a message waits that somebody else is at work on, before the claim is looked at again."""
_RECONCILE_EVERY = timedelta(seconds=30)


class ClaimLost(OnceMQError):
    """A handler outlived its claim: somebody else was told that it might be dead."""


class TwoPhase(Strategy):
    """A handler whose effect cannot be rolled back runs once, unless `verify` says that it did nothing.

    Options, all of them optional:

    - `verify: "module:function"`: called with the Envelope when a handler was cut off or failed, so that nobody
      knows whether its effect happened; returns `Done(result)`, `NotDone` or `Unknown`. Without it, and after
      `Unknown`, the message becomes a dead letter for a person to look at.
    - `lease: 60s`: how long a dead process's claim is respected. A living one renews its claims.
    - `fingerprint: [body.amount, …]`: the same identity with other content is a Conflict.

    What the handler returns is kept as JSON (at most 64 KiB) and given to a duplicate. `raise Retry` and
    `raise Reject` say that nothing happened; any other exception leaves the claim unknown until `verify` answers.
    """

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset({UnitKind.DIRECT}))

    def __init__(self, scope: Scope, asker: Asker, lease: timedelta, fingerprint: Fingerprint | None) -> None:
        self._consumer = scope.consumer
        self._asker = asker
        self._lease = lease
        self._fingerprint = fingerprint
        self._book: ClaimBook
        self._keeper: ClaimKeeper
        if scope.engine is not None:
            ledger = claims.Claims(scope.consumer)
            self._book = ClaimBook(scope.engine, ledger, lease, scope.clock)
            self._keeper = ClaimKeeper(scope.engine, ledger, lease, scope.clock)

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Make one from its options."""
        given = Options("two_phase", options, scope)
        given.known("verify", "lease", "fingerprint")
        verify = given.imported("verify") if given.has("verify") else None
        if verify is not None and not callable(verify):
            given.refuse(
                f"{verify!r} is no function", "name one: def verify(envelope: Envelope)", name="verify"
            )
        lease = given.duration("lease") or DEFAULT_LEASE
        if lease < _SHORTEST_LEASE:
            given.refuse(
                f"{format_duration(lease)} is over before it can be renewed",
                f"write {format_duration(_SHORTEST_LEASE)} or longer; {format_duration(DEFAULT_LEASE)} is usual",
                name="lease",
            )
        fields = given.names("fingerprint") if given.has("fingerprint") else []
        expressions = [given.expression("fingerprint", field) for field in fields]
        return cls(scope, Asker(verify), lease, fingerprint_of(expressions) if expressions else None)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what cannot be safe."""
        if not facts.dialect:
            yield Problem(
                "two_phase keeps its claims in a database", "give the app a `database`", "strategies"
            )
        if not self._asker.can_ask:
            yield Problem(
                "two_phase without `verify`: when a handler fails or its process dies, nobody can say whether its "
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

    def reserve(self, unit: Unit) -> None:
        """Claim every identity of the unit in one transaction; what others hold is put off."""
        envelopes = [
            one.envelope for one in unit.deliveries if one.envelope is not None and one not in unit.verdicts
        ]
        # If the answer to the commit is lost, these are what `release` has to give back.
        unit.notes[self] = {one.identity: Held(Phase.OURS) for one in envelopes}
        self._keeper.hold(unit.owner)
        held = unit.notes[self] = self._book.take(envelopes, unit.owner)
        for delivery in unit.deliveries:
            one = held.get(delivery.envelope.identity) if delivery.envelope is not None else None
            if one is not None and one.phase is Phase.FOREIGN:
                unit.verdicts.setdefault(delivery, _not_now())

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Claim anew what an earlier copy gave up, and verify what is in doubt."""
        held: dict[str, Held] = run.unit.notes[self]
        for item in items:
            identity = item.envelope.identity
            if held[identity].phase is Phase.GONE:
                held[identity] = self._book.take([item.envelope], run.unit.owner)[identity]
            if held[identity].phase is Phase.DOUBTFUL and not self._differs(held[identity], item):
                self._verify(run, item, held[identity])

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED for what is claimed, DUPLICATE for what is done, or why it cannot run now."""
        identity = item.envelope.identity
        held: Held = run.unit.notes[self][identity]
        if self._differs(held, item):
            return conflict(
                f"identity {identity!r} of key {item.key!r} came before with other content: the fields of "
                "`fingerprint` differ"
            )
        if held.phase is Phase.OURS:
            # Now: a handler may change its payload.
            held.phase, held.fingerprint = Phase.STARTED, self._print(item)
            return PROCEED
        if held.phase is Phase.DONE:
            item.result = held.known_result()
            return DUPLICATE
        if held.phase is Phase.UNKNOWN:
            return reject(
                f"nobody knows whether identity {identity!r} took effect: a person must look – {held.reason}",
                code=UNKNOWN_EFFECT,
            )
        if held.phase is Phase.UNANSWERED and held.error is not None:
            after = held.error.after if isinstance(held.error, Retry) else None
            text = f"verify could not answer for identity {identity!r}: {_text_of(held.error)}"
            return retry(text, after=after, error=held.error)
        return _not_now()

    def save(self, run: Run) -> None:
        """Write down how the handler ended; the claim of one that was never called is given back."""
        owner = run.unit.owner
        for item in run.items:
            identity = item.envelope.identity
            held: Held = run.unit.notes[self][identity]
            if held.phase is not Phase.STARTED:
                continue
            if item.verdict is PROCEED:
                self._finish(run, item, held)
            elif may_have_happened(item.verdict):
                reason = item.verdict.reason if item.verdict is not None else ""
                self._book.doubt(identity, owner, reason, fingerprint=held.fingerprint)
                held.phase = Phase.GONE
            else:
                self._book.drop([identity], owner)
                held.phase = Phase.GONE

    def committed(self, run: Run) -> None:
        """Tell what a person may want to know, though it changes nothing.

        Raises:
            ClaimLost: while the handler ran, somebody else took the message over.
            ValueError: what the handler returned cannot be kept.
        """
        for error in run.notes.get(self, ()):
            raise error

    def release(self, unit: Unit) -> None:
        """Give back what was never started; what was started and not written down stays in doubt."""
        held: dict[str, Held] = unit.notes.pop(self, {})
        try:
            for identity, one in held.items():
                if one.phase is Phase.DOUBTFUL:
                    before = one.claim.reason if one.claim is not None else None
                    self._book.doubt(identity, unit.owner, before or "it was not verified yet")
            untouched = [identity for identity, one in held.items() if one.phase is Phase.OURS]
            self._book.drop(untouched, unit.owner)
        finally:
            self._keeper.let_go(unit.owner)

    def upkeep(self) -> Sequence[UpkeepTask]:
        """Return the task that asks about claims that nobody is at."""
        if not self._asker.can_ask:
            return ()
        reconciler = self._reconciler()
        return (UpkeepTask(f"reconcile {self._consumer}", _RECONCILE_EVERY, lambda _: reconciler.step()),)

    def reconcile(
        self, engine: Engine, *, identity: str | None = None, answer: Answer | None = None
    ) -> Iterator[Reconciled]:
        """Ask about every claim that nobody is at, or settle one as a person says."""
        del engine
        return self._reconciler().all(identity, answer)

    def _reconciler(self) -> Reconciler:
        return Reconciler(self._book, self._keeper, self._asker)

    def _verify(self, run: Run, item: Item, held: Held) -> None:
        identity, owner = item.envelope.identity, run.unit.owner
        answer = self._asker.ask(item.envelope)
        if isinstance(answer, Unanswered):
            self._book.doubt(identity, owner, _text_of(answer.error))
            held.phase, held.error = Phase.UNANSWERED, answer.error
        elif isinstance(answer, Done):
            held.result, held.has_result = answer.result, True
            ours = self._book.finish(
                identity, owner, result=stored_or_none(answer.result), fingerprint=self._print(item)
            )
            held.phase = Phase.DONE if ours else Phase.FOREIGN
        elif isinstance(answer, NotDone):
            held.phase = Phase.OURS if self._book.undone(identity, owner) else Phase.FOREIGN
        else:
            held.reason = answer.reason or "verify said Unknown"
            if held.claim is not None and held.claim.reason:
                held.reason += f"; before: {held.claim.reason}"
            self._book.doubt(identity, owner, held.reason, ask_in=Reconciler.ASK_AGAIN)
            held.phase = Phase.UNKNOWN

    def _finish(self, run: Run, item: Item, held: Held) -> None:
        identity, result = item.envelope.identity, None
        told: list[Exception] = []
        run.notes[self] = told
        try:
            result = stored(item.result) if item.result is not None else None
        except ValueError as error:
            told.append(ValueError(f"what the handler of {identity!r} returned cannot be kept: {error}"))
        if not self._book.finish(identity, run.unit.owner, result=result, fingerprint=held.fingerprint):
            told.append(
                ClaimLost(
                    f"{self._consumer}: the handler of {identity!r} outlived its claim, and another process took "
                    "it over: the effect may have happened twice; is the lease too short for the database's outages?"
                )
            )
        held.phase, held.result, held.has_result = Phase.DONE, item.result, True

    def _differs(self, held: Held, item: Item) -> bool:
        if self._fingerprint is None or held.phase not in {Phase.DONE, Phase.DOUBTFUL}:
            return False
        known = held.fingerprint or (held.claim.fingerprint if held.claim is not None else None)
        return known is not None and known != self._fingerprint(item)

    def _print(self, item: Item) -> str | None:
        return self._fingerprint(item) if self._fingerprint is not None else None


def may_have_happened(verdict: Verdict | None) -> bool:
    """Return whether a handler that ended so may have had an effect: it raised, and did not say that it had none."""
    if verdict is None:
        return True
    if verdict.outcome is not Outcome.RETRY:
        return False
    return verdict.error is not None and not isinstance(verdict.error, Signal | MessageRefused)


def _not_now() -> Verdict:
    return defer(_LOOK_AGAIN, "somebody else is at work on this message")


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
