"""Base of strategies for effects outside the database: claim before the handler, record its outcome after it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import (
    PROCEED,
    Outcome,
    Verdict,
    conflict,
    defer,
    reject,
    retry,
)
from oncemq.contracts.verification import Done, NotDone
from oncemq.errors import MessageRefused, OnceMQError, Retry, Signal
from oncemq.message.envelope import Delivery, Envelope
from oncemq_strategies.claims.ledger_claims import Held, Phase, Wanted
from oncemq_strategies.claims.stored_messages import Doubt, Finish, OfHandler, OfVerify
from oncemq_strategies.claims.verify import Asker, Unanswered
from oncemq_strategies.common.fingerprint import Fingerprint
from oncemq_strategies.common.results import stored, stored_or_none

UNKNOWN_EFFECT = "unknown-effect"
"""Reason of a dead letter when it is unknown whether the message took effect."""

ASK_AGAIN = timedelta(hours=1)
"""Delay before a claim that remained unknown is verified again in the background."""

_LOOK_AGAIN = timedelta(milliseconds=250)
"""How long a message waits that another worker is processing, before its claim is checked again for the first time."""
_LONGEST_LOOK = timedelta(seconds=5)
"""The same later: a claim that lasts is a dead process's, whose lease must end, or a long handler's."""


class ClaimLost(OnceMQError):
    """A handler outlived its claim: another worker took it over as possibly dead."""


class Book(Protocol):
    """Store of claims; every change compares the owner, and can be repeated when its answer was lost."""

    def take_all(self, wanted: Sequence[Wanted]) -> Sequence[dict[str, Held]]:
        """Claim free identities, take over abandoned ones for verification; returns for each owner the states by identity."""
        ...

    def start_waits(self, owner: str) -> bool:
        """Return whether `start` asks a server about the claims of this owner."""
        ...

    def start(self, identities: Sequence[str], owner: str) -> Sequence[str]:
        """Record that the handlers of these begin now; returns those that are no longer ours."""
        ...

    def undone(self, identity: str, owner: str) -> bool:
        """Let the handler of a verified claim run; returns whether the claim was still ours."""
        ...

    def finish_all(self, ends: Sequence[Finish]) -> Sequence[bool]:
        """Record that effects happened, at once; returns for each whether the claim was ours.

        Their messages are stored in the same transaction if the claims are in the database; otherwise before.
        """
        ...

    def doubt(
        self,
        identity: str,
        owner: str,
        reason: str,
        *,
        ask_in: timedelta = timedelta(0),
        fingerprint: str | None = None,
    ) -> bool:
        """Record that the effect may have happened; returns whether the claim was ours."""
        ...

    def doubt_all(self, doubts: Sequence[Doubt]) -> None:
        """Record that several effects may have happened, at once."""
        ...

    def drop(self, identities: Sequence[str], owner: str) -> None:
        """Delete our claims whose handler certainly had no effect."""
        ...

    def drop_all(self, claims: Sequence[tuple[str, str]]) -> None:
        """Do so for claims of several owners: identity and owner of each."""
        ...


class Keeper(Protocol):
    """Renews the claims of live owners."""

    def hold(self, owner: str) -> None:
        """Renew the claims of this owner from now on."""
        ...

    def let_go(self, owner: str) -> None:
        """Stop renewing the claims of this owner."""
        ...


class Claiming(Strategy):
    """Runs a message when its claim is ours; the handler's outcome is recorded before the message is settled.

    `raise Retry` and `raise Reject` mean that nothing happened; any other exception leaves the claim in doubt until
    the asker has an answer.
    """

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset({UnitKind.DIRECT}), per_consumer=True)
    _consumer: str
    _asker: Asker
    _fingerprint: Fingerprint | None
    _book: Book
    _keeper: Keeper
    _scope: Scope
    _duplicate: ClassVar[Verdict]

    def reserve(self, unit: Unit) -> None:
        """Claim every identity of the unit in one transaction; messages claimed by others are deferred."""
        self.reserve_all([unit])

    def reserve_all(self, units: Sequence[Unit]) -> None:
        """Do so for several units."""
        wanted: list[Wanted] = []
        for unit in units:
            envelopes: dict[str, Envelope] = {}
            for entry in unit.deliveries:
                if entry.envelope is not None and entry not in unit.verdicts:
                    envelopes.setdefault(entry.envelope.identity, entry.envelope)
            # If the commit's answer is lost, `release` has to release these.
            unit.notes[self] = {identity: Held(Phase.OURS) for identity in envelopes}
            self._keeper.hold(unit.owner)
            wanted.append(Wanted(unit.owner, envelopes))
        for unit, held in zip(units, self._book.take_all(wanted), strict=True):
            unit.notes[self] = held
            for delivery in unit.deliveries:
                claim = held.get(delivery.envelope.identity) if delivery.envelope is not None else None
                if claim is not None and claim.phase is Phase.FOREIGN:
                    unit.verdicts.setdefault(delivery, self._not_now(delivery))

    def load_waits(self, run: Run) -> bool:
        """Return whether a claim must be taken again, verified or looked at."""
        held: dict[str, Held] = run.unit.notes[self]
        phases = {held[item.envelope.identity].phase for item in run.items}
        waits = Phase.GONE in phases or Phase.DOUBTFUL in phases
        return waits or (Phase.OURS in phases and self._book.start_waits(run.unit.owner))

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Claim again identities that an earlier copy released, and verify claims that are in doubt."""
        held: dict[str, Held] = run.unit.notes[self]
        for item in items:
            identity = item.envelope.identity
            if held[identity].phase is Phase.GONE:
                held.update(self._book.take_all([Wanted(run.unit.owner, {identity: item.envelope})])[0])
            if held[identity].phase is Phase.DOUBTFUL and not self._differs(held[identity], item):
                self._verify(run, item, held[identity])
        ours = [
            candidate.envelope.identity
            for candidate in items
            if held[candidate.envelope.identity].phase is Phase.OURS
        ]
        for identity in self._book.start(ours, run.unit.owner):
            held[identity].phase = Phase.FOREIGN

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED for claimed messages, a duplicate for completed ones, or why the message cannot run now."""
        identity = item.envelope.identity
        held: Held = run.unit.notes[self][identity]
        if self._differs(held, item):
            return conflict(
                f"identity {identity!r} of key {item.key!r} came before with other content: the fields of "
                "`fingerprint` differ"
            )
        if held.phase is Phase.OURS:
            # Computed now: a handler may change its payload.
            held.phase, held.fingerprint = Phase.STARTED, self._print(item)
            return PROCEED
        if held.phase is Phase.DONE:
            item.result = held.known_result()
            return self._duplicate
        if held.phase is Phase.UNKNOWN:
            return reject(
                f"it is not known whether identity {identity!r} took effect: an operator must decide – {held.reason}",
                code=UNKNOWN_EFFECT,
            )
        if held.phase is Phase.UNANSWERED and held.error is not None:
            after = held.error.after if isinstance(held.error, Retry) else None
            text = f"verify could not answer for identity {identity!r}: {_text_of(held.error)}"
            return retry(text, after=after, error=held.error)
        return self._not_now(item.delivery)

    def record(self, run: Run, item: Item) -> None:
        """Write the handler's result as JSON."""
        held: Held = run.unit.notes[self][item.envelope.identity]
        if held.phase is not Phase.STARTED or item.verdict is not PROCEED:
            return
        held.result, held.text = item.result, None
        told: list[Exception] = []
        run.notes[self] = told
        try:
            held.text = stored(item.result) if item.result is not None else None
        except ValueError as error:
            told.append(
                ValueError(f"what the handler of {item.envelope.identity!r} returned cannot be kept: {error}")
            )

    def save(self, run: Run) -> None:
        """Record how the handler ended; release the claim of a message whose handler was never called."""
        self.save_all([run])

    def save_all(self, runs: Sequence[Run]) -> None:
        """Do so for several runs of any units, each kind of outcome at once."""
        started = [
            (run, item, held) for run in runs for item in run.items if (held := self._started(run, item))
        ]
        done = [
            (run, held, self._end(run, item, held)) for run, item, held in started if item.verdict is PROCEED
        ]
        failed = [entry for entry in started if entry[1].verdict is not PROCEED]
        doubtful = [entry for entry in failed if may_have_happened(entry[1].verdict)]
        undone = [entry for entry in failed if not may_have_happened(entry[1].verdict)]
        if done:
            self._finish(done)
        if doubtful:
            self._book.doubt_all([_doubt(*entry) for entry in doubtful])
            _gone(doubtful)
        if undone:
            self._book.drop_all([(item.envelope.identity, run.unit.owner) for run, item, _ in undone])
            _gone(undone)

    def _started(self, run: Run, item: Item) -> Held | None:
        held: Held = run.unit.notes[self][item.envelope.identity]
        return held if held.phase is Phase.STARTED else None

    def committed(self, run: Run) -> None:
        """Report problems that change no outcome.

        Raises:
            ClaimLost: another worker took the message over while the handler ran.
            ValueError: the handler's result cannot be stored.
        """
        for error in run.notes.get(self, ()):
            raise error

    def release(self, unit: Unit) -> None:
        """Release claims that were never started; claims started without a recorded outcome stay in doubt."""
        held: dict[str, Held] = unit.notes.pop(self, {})
        try:
            for identity, claim in held.items():
                if claim.phase is Phase.DOUBTFUL:
                    self._book.doubt(identity, unit.owner, claim.before or "it was not verified yet")
            untouched = [identity for identity, claim in held.items() if claim.phase is Phase.OURS]
            self._book.drop(untouched, unit.owner)
        finally:
            self._keeper.let_go(unit.owner)

    def _verify(self, run: Run, item: Item, held: Held) -> None:
        identity, owner = item.envelope.identity, run.unit.owner
        asked = self._asker.ask(item.envelope)
        answer = asked.answer
        if isinstance(answer, Unanswered):
            self._book.doubt(identity, owner, _text_of(answer.error))
            held.phase, held.error = Phase.UNANSWERED, answer.error
        elif isinstance(answer, Done):
            held.result, held.has_result = answer.result, True
            messages = OfVerify(self._scope, asked.published) if asked.published else None
            end = Finish(identity, owner, stored_or_none(answer.result), self._print(item), messages)
            (ours,) = self._book.finish_all([end])
            held.phase = Phase.DONE if ours else Phase.FOREIGN
        elif isinstance(answer, NotDone):
            held.phase = Phase.OURS if self._book.undone(identity, owner) else Phase.FOREIGN
        else:
            before = f"; before: {held.before}" if held.before else ""
            held.reason = (answer.reason or "verify said Unknown") + before
            self._book.doubt(identity, owner, held.reason, ask_in=ASK_AGAIN)
            held.phase = Phase.UNKNOWN

    @staticmethod
    def _end(run: Run, item: Item, held: Held) -> Finish:
        if held.messages is None and run.published:
            # Kept with the claim: when this fails and is repeated, they must not be stored twice.
            held.messages = OfHandler(run)
        return Finish(item.envelope.identity, run.unit.owner, held.text, held.fingerprint, held.messages)

    def _finish(self, done: Sequence[tuple[Run, Held, Finish]]) -> None:
        answers = self._book.finish_all([end for _, _, end in done])
        for (run, held, end), ours in zip(done, answers, strict=True):
            if not ours:
                run.notes.setdefault(self, []).append(
                    ClaimLost(
                        f"{self._consumer}: the handler of {end.identity!r} outlived its claim, and another process took "
                        "it over: the effect may have happened twice; is the lease too short for the database's outages?"
                    )
                )
            elif held.messages is not None:
                held.messages.send()
            held.phase, held.has_result = Phase.DONE, True

    def _not_now(self, delivery: Delivery) -> Verdict:
        """Return Defer, half as long again as the message has waited."""
        since = delivery.deferred_since
        waited = timedelta(seconds=self._scope.clock.monotonic() - since) if since else timedelta(0)
        pause = min(max(_LOOK_AGAIN, waited / 2), _LONGEST_LOOK)
        return defer(pause, "another process is working on this message")

    def _differs(self, held: Held, item: Item) -> bool:
        if self._fingerprint is None or held.phase not in {Phase.DONE, Phase.DOUBTFUL}:
            return False
        known = held.fingerprint or (held.claim.fingerprint if held.claim is not None else None)
        return known is not None and known != self._fingerprint(item)

    def _print(self, item: Item) -> str | None:
        return self._fingerprint(item) if self._fingerprint is not None else None


def _doubt(run: Run, item: Item, held: Held) -> Doubt:
    reason = item.verdict.reason if item.verdict is not None else ""
    return Doubt(item.envelope.identity, run.unit.owner, reason, held.fingerprint)


def _gone(entries: Sequence[tuple[Run, Item, Held]]) -> None:
    for _, _, held in entries:
        held.phase = Phase.GONE


def may_have_happened(verdict: Verdict | None) -> bool:
    """Return whether the handler may have had an effect: it raised, and did not say that it had none."""
    if verdict is None:
        return True
    if verdict.outcome is not Outcome.RETRY:
        return False
    return verdict.error is not None and not isinstance(verdict.error, Signal | MessageRefused)


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
