"""Says what is wrong with the evidence: a pure function, so that it is itself tested with every kind of wrong ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storm.oracle.evidence import Effect, Evidence, Fate, Promise, Seen

_APPLIED = frozenset({Fate.APPLIED})
_NOTED = {"stale": Fate.STALE, "parked": Fate.PARKED}

LOST = "lost"
DOUBLE = "double"
UNEXPECTED = "unexpected"
TWO_FATES = "two-fates"
WRONG_FATE = "wrong-fate"
NO_REASON = "no-reason"
COPIES = "dead-letter-copies"
ATTEMPTS = "attempts"
ORDER = "order"
LEFT_BEHIND = "left-behind"
NOT_FIRED = "not-fired"

KINDS = (
    LOST,
    DOUBLE,
    UNEXPECTED,
    TWO_FATES,
    WRONG_FATE,
    NO_REASON,
    COPIES,
    ATTEMPTS,
    ORDER,
    LEFT_BEHIND,
    NOT_FIRED,
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise.

    Args:
        kind: one of `KINDS`.
        what: the message or thing it is about.
        detail: what was seen.
    """

    kind: str
    what: str
    detail: str


def judge(evidence: Evidence, promise: Promise) -> list[Violation]:
    """Return every violation, in the order of `KINDS`."""
    found = [
        *_fates(evidence, promise),
        *_reasons(evidence),
        *_copies(evidence, promise),
        *_attempts(evidence, promise),
        *(_rising(evidence, promise) if promise.rising else ()),
        *(_ordered(evidence) if promise.ordered else ()),
        *(_overtaken(evidence.effects, evidence.arrivals) if promise.held else ()),
        *(Violation(LEFT_BEHIND, what, "is still there after the drain") for what in evidence.remains),
        *(
            Violation(NOT_FIRED, fault.name, f"asked for {fault.asked} times, happened {fault.fired} times")
            for fault in evidence.faults
            if fault.fired < fault.asked
        ),
    ]
    return sorted(found, key=lambda violation: KINDS.index(violation.kind))


def _fates(evidence: Evidence, promise: Promise) -> Iterator[Violation]:
    effects = Counter(effect.identity for effect in evidence.effects)
    fates: dict[str, set[Fate]] = defaultdict(set)
    for identity in effects:
        fates[identity].add(Fate.APPLIED)
    for letter in evidence.letters:
        fates[letter.identity].add(Fate.DEAD)
    for note in evidence.notes:
        fate = _NOTED.get(note.outcome)
        if fate is not None and Fate.APPLIED not in fates[note.identity]:
            fates[note.identity].add(fate)
    for had in fates.values():
        if Fate.STALE in had:
            # It was parked behind a retry of its key; a row that is parked still is among the remains.
            had.discard(Fate.PARKED)
    for identity, count in effects.items():
        if count > 1:
            yield Violation(DOUBLE, identity, f"{count} effects")
    for identity, had in fates.items():
        sent = evidence.sent.get(identity)
        if sent is None or not sent.attempted:
            yield Violation(UNEXPECTED, identity, f"it was never sent, but it was {_words(had)}")
        elif len(had) > 1:
            yield Violation(TWO_FATES, identity, _words(had))
        elif not had <= promise.fates.get(sent.kind, _APPLIED):
            yield Violation(WRONG_FATE, identity, f"{sent.kind}, but {_words(had)}")
    for identity, sent in evidence.sent.items():
        if sent.confirmed and not fates.get(identity):
            yield Violation(LOST, identity, f"confirmed {sent.confirmed} times, nothing became of it")


def _words(fates: set[Fate]) -> str:
    return " and ".join(sorted(fates))


def _reasons(evidence: Evidence) -> Iterator[Violation]:
    for letter in evidence.letters:
        if not letter.reason:
            yield Violation(NO_REASON, letter.identity, "a dead letter without a reason")
    steps: dict[str, int] = {}
    for effect in evidence.effects:
        sent = evidence.sent.get(effect.identity)
        if sent is not None:
            steps[effect.key] = max(steps.get(effect.key, 0), sent.step)
    for note in evidence.notes:
        if note.outcome in _NOTED and not note.reason:
            yield Violation(NO_REASON, note.identity, f"{note.outcome} without a reason")
        sent = evidence.sent.get(note.identity)
        if note.outcome == "stale" and sent is not None and steps.get(sent.key, 0) <= sent.step:
            yield Violation(NO_REASON, note.identity, "stale, but nothing later of its key was applied")


def _copies(evidence: Evidence, promise: Promise) -> Iterator[Violation]:
    letters = Counter(letter.identity for letter in evidence.letters)
    excess = {
        identity: count - evidence.sent[identity].attempted
        for identity, count in letters.items()
        if identity in evidence.sent and count > evidence.sent[identity].attempted
    }
    for identity, more in excess.items():
        # Letters are sent together: one death between their confirmations and their acknowledgements copies each of them.
        if more > promise.copies:
            yield Violation(COPIES, identity, f"{letters[identity]} dead letters")


def _attempts(evidence: Evidence, promise: Promise) -> Iterator[Violation]:
    for letter in evidence.letters:
        if letter.attempt > promise.attempts:
            yield Violation(ATTEMPTS, letter.identity, f"dead after {letter.attempt} attempts")
    for seen in evidence.tried:
        if seen.attempt > promise.attempts:
            yield Violation(ATTEMPTS, seen.identity, f"handler began in attempt {seen.attempt}")
    letters = Counter(letter.identity for letter in evidence.letters)
    for identity, count in Counter(seen.identity for seen in evidence.tried).items():
        sent = evidence.sent.get(identity)
        # A death between a confirmed copy and the original's acknowledgement leaves both: each has its attempts, and ends as
        # a dead letter of its own. How many of those there may be is bounded by `_copies`.
        ways = max(sent.attempted, letters[identity]) if sent else 0
        most = promise.attempts * ways + promise.reruns
        if count > most:
            yield Violation(ATTEMPTS, identity, f"handler began {count} times, at most {most} are explained")


def _rising(evidence: Evidence, promise: Promise) -> Iterator[Violation]:
    excused = _retried(evidence) if promise.retries_lose_place else frozenset()
    last: dict[str, Effect] = {}
    for effect in evidence.effects:
        if effect.identity in excused:
            continue
        before = last.get(effect.key)
        steps = [
            evidence.sent[neighbour.identity].step
            for neighbour in (before, effect)
            if neighbour and neighbour.identity in evidence.sent
        ]
        if len(steps) == 2 and steps[1] < steps[0]:
            yield Violation(
                ORDER, effect.key, f"{effect.identity} was applied after {before and before.identity}"
            )
        last[effect.key] = effect


def _ordered(evidence: Evidence) -> Iterator[Violation]:
    """Compare effects with arrivals, key by key, inside each process; a retried message has lost its place.

    A message that another process retries from the ledger keeps the place that it had there; no arrival shows it.
    """
    retried = _retried(evidence)
    arrivals: dict[int, list[Seen]] = defaultdict(list)
    effects: dict[int, list[Effect]] = defaultdict(list)
    for seen in evidence.arrivals:
        arrivals[seen.process].append(seen)
    for effect in evidence.effects:
        if effect.identity not in retried and effect.attempt == 1:
            effects[effect.process].append(effect)
    for process, mine in effects.items():
        yield from _overtaken(mine, arrivals[process])


def _overtaken(effects: Iterable[Effect], arrivals: Iterable[Seen]) -> Iterator[Violation]:
    """Say what was applied after a message of its key that came later.

    A message may arrive several times, as a copy, after a lost connection or a death. So two of a key are
    out of order only if all arrivals of the one that was applied later lie before all of the other.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, seen in enumerate(arrivals):
        first.setdefault(seen.identity, position)
        last[seen.identity] = position
    latest: dict[str, tuple[int, str]] = {}
    for effect in effects:
        identity = effect.identity
        if identity not in first:
            continue
        place, other = latest.get(effect.key, (-1, ""))
        if last[identity] < place:
            yield Violation(ORDER, effect.key, f"{identity} arrived before {other}, was applied after it")
        latest[effect.key] = max((place, other), (first[identity], identity))


def _retried(evidence: Evidence) -> frozenset[str]:
    return frozenset(seen.identity for seen in evidence.arrivals if seen.attempt > 1 or seen.moved)
