"""Random histories of numbered messages, what strategies should make of them, and what must be true of every end.

The reference is a pure function of a history: no database, no engine, as the documents describe the strategies.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final

ATTEMPTS: Final = 3
STATES: Final = tuple(f"s{number}" for number in range(1, 10))
ROOM: Final = 2
"""Messages of one key that may be parked."""

SINGLE: Final = ("unique_key", "tiered", "state_machine", "sequence", "optimistic_lock", "precondition")
"""Every strategy that decides in a transaction."""
LISTED: Final = ("unique_key", "state_machine", "sequence", "optimistic_lock")
KNOW_COPIES: Final = frozenset({"unique_key", "tiered", "two_phase", "redis_flag"})
STRICT: Final = frozenset({"sequence", "optimistic_lock"})
"""Places are taken one after the other, from the first one on."""
CHAINS: Final = (
    *((name,) for name in SINGLE),
    *(pair for pair in permutations(SINGLE, 2) if len(KNOW_COPIES.intersection(pair)) < len(pair)),
    *(pair for name in SINGLE for pair in permutations((name, "pessimistic_lock"), 2)),
    LISTED,
    LISTED[::-1],
)
LOCKED: Final = tuple(pair for name in SINGLE for pair in permutations((name, "redis_lock"), 2))
OUTSIDE: Final = (
    *(("two_phase",), ("redis_flag",), ("redis_lock", "two_phase"), ("redis_lock", "redis_flag")),
    ("two_phase", "redis_lock"),
)
"""For effects outside the database. They are played without deaths: a dead process's claim lasts for a lease in real time."""
GUARDS: Final = frozenset({"pessimistic_lock", "redis_lock"})
FINAL: Final = frozenset({"applied", "duplicate", "stale"})
REASONS: Final = frozenset({"rejected", "attempts-exhausted", "overtaken", "gap"})


@dataclass(frozen=True, slots=True)
class Event:
    """One business message.

    Args:
        key: its entity.
        number: tells it from the others of its key; its identity is both.
        place: what `sequence` and `optimistic_lock` compare.
        state: what `state_machine` compares.
        acts: what its handler does at each attempt; `add` after the last.
    """

    key: str
    number: int
    place: int
    state: int
    acts: tuple[str, ...]

    @property
    def identity(self) -> str:
        """As the reader makes it of key and version."""
        return f"{self.key}:{self.number}"

    def act(self, attempt: int) -> str:
        """Return what the handler does at an attempt."""
        return self.acts[attempt - 1] if attempt <= len(self.acts) else "add"


@dataclass(frozen=True, slots=True)
class History:
    """What happens to a consumer.

    Args:
        seed: everything that is left to chance later on is drawn from it.
        events: every business message.
        copies: which of them are published, in order; one twice is a duplicate.
        disorder: how often the broker delivers another than the oldest one.
        kills: how often a process dies over a delivery, before or after its commit.
    """

    seed: int
    events: tuple[Event, ...]
    copies: tuple[int, ...]
    disorder: float
    kills: float

    def __repr__(self) -> str:
        return f"<history {self.seed}: {[self.events[copy] for copy in self.copies]}>"


def draw_history(seed: int) -> History:
    """Return the history of a seed: few keys, some with places and states that contradict each other."""
    draw = random.Random(seed)
    agree, failing = draw.random() < 0.6, draw.choice([0.0, 0.2, 0.5])
    events: list[Event] = []
    for key in "ab"[: draw.choice([1, 1, 2])]:
        many = draw.randint(1, 6)
        for number in range(1, many + 1):
            place = number if agree or draw.random() < 0.7 else draw.randint(1, many)
            state = number if agree or draw.random() < 0.7 else draw.randint(1, many)
            acts = (
                draw.choices(["fail", "fail", "reject", "add"], k=ATTEMPTS) if draw.random() < failing else []
            )
            events.append(Event(key, number, place, state, tuple(acts)))
    copies = [*range(len(events)), *draw.choices(range(len(events)), k=draw.choice([0, 1, 4]))]
    if draw.random() < 0.7:
        draw.shuffle(copies)
    if draw.random() < 0.1:
        copies.pop()
    return History(
        seed, tuple(events), tuple(copies), draw.choice([0.0, 0.3, 0.9]), draw.choice([0.0, 0.0, 0.1])
    )


@dataclass(slots=True)
class Ends:
    """What became of the messages of a history.

    Attributes:
        effects: identities in the order of their effects.
        dead: reasons of dead letters by identity.
        tried: identities whose handler ran and failed.
        settled: identities that were acknowledged without an effect.
    """

    effects: list[str] = field(default_factory=list)
    dead: dict[str, list[str]] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)


def wrong_with(history: History, chain: Sequence[str], ends: Ends) -> list[str]:
    """Return everything that no strategy may make of a history; empty when each message has exactly one end."""
    found = [
        f"applied {count} times: {identity}" for identity, count in Counter(ends.effects).items() if count > 1
    ]
    applied = set(ends.effects)
    for event in sorted({history.events[copy] for copy in history.copies}, key=lambda one: one.identity):
        identity, dead = event.identity, ends.dead.get(event.identity, [])
        found += [f"dead for no known reason ({why}): {identity}" for why in dead if why not in REASONS]
        if "overtaken" in dead and identity not in ends.tried:
            found.append(f"overtaken, but never tried: {identity}")
        if identity in applied:
            found += [f"applied and dead ({why}): {identity}" for why in dead if why not in _after(chain)]
        elif not dead and identity in ends.tried:
            found.append(f"tried, failed and never heard of again: {identity}")
        elif not dead and identity not in ends.settled:
            found.append(f"lost: {identity}")
        elif not dead and not _explained(history, chain, ends, event):
            found.append(f"settled, though nothing that was applied explains it: {identity}")
    return found


def _after(chain: Sequence[str]) -> set[str]:
    """Return what a copy of an applied message may end as besides."""
    allowed = {"gap"}  # it may wait for a number that never comes, or run into a state of its own
    if "precondition" in chain:
        allowed.add("rejected")  # one copy came too early, another one in time
    if KNOW_COPIES.isdisjoint(chain):
        # Without a memory of identities nothing tells an overtaken copy; see the documents.
        allowed.add("overtaken")
    return allowed


def _explained(history: History, chain: Sequence[str], ends: Ends, event: Event) -> bool:
    """Return whether a message that was neither applied nor tried is older than another one of its key."""
    compared = not {"state_machine", *STRICT}.isdisjoint(chain)
    others = [other for other in history.events if other.key == event.key and other is not event]
    if not compared:
        return False  # what only knows copies leaves nothing out
    if all(each.place == each.state == each.number for each in (*others, event)):
        # Where places come one after the other, nothing is older than an applied one without having been applied.
        newer = [other for other in others if other.number > event.number and other.identity in ends.effects]
        return bool(newer) and STRICT.isdisjoint(chain)
    used = {*ends.effects, *ends.settled}
    return any(
        (other.identity in ends.effects and other.state >= event.state)
        or (other.identity in used and other.place >= event.place)
        for other in others
    )


@dataclass(slots=True)
class _Copy:
    event: Event
    attempt: int = 1
    tried: bool = False


class Reference:
    """The strategies as the documents describe them, on dictionaries.

    Args:
        chain: the strategies' names, in order.

    Attributes:
        ends: what became of the messages so far.
    """

    def __init__(self, chain: Sequence[str]) -> None:
        self.chain = chain
        self.ends = Ends()
        self._identities: set[str] = set()
        self._states: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._parked: list[_Copy] = []
        self._queue: list[_Copy] = []

    def play(self, history: History) -> Ends:
        """Deliver everything until nothing moves any more; what still waits then has waited too long."""
        draw = random.Random(history.seed)
        self._queue = [_Copy(history.events[copy]) for copy in history.copies]
        idle = 0
        while self._queue and idle <= 2 * len(self._queue):
            place = draw.randrange(len(self._queue)) if draw.random() < history.disorder else 0
            copy = self._queue.pop(place)
            killed = draw.choice(["before", "after"]) if draw.random() < history.kills else ""
            idle = idle + 1 if self._deliver(copy, killed) else 0
        for copy in (*self._queue, *self._parked):
            self._bury(copy, "gap")
        return self.ends

    def _deliver(self, copy: _Copy, killed: str) -> bool:
        """Deliver a copy; returns whether it only waits."""
        if killed == "before":
            self._queue.append(copy)
            return False
        verdict = self._decide(copy)
        if verdict == "proceed":
            verdict = self._handle(copy)
        if verdict in FINAL:
            self._record(copy.event, verdict)
            if killed:
                self._queue.append(copy)
            self._follow(copy.event.key)
        elif verdict == "retry":
            copy.attempt, copy.tried = copy.attempt + 1, True
            self._queue.append(copy)
        elif verdict == "wait":
            self._queue.append(copy)
        elif verdict == "park" and self._has_room(copy):
            self._parked.append(copy)
        elif verdict == "park":
            self._queue.append(copy)
            return True
        else:
            self._bury(copy, verdict)
        return verdict == "wait"

    def _decide(self, copy: _Copy) -> str:
        for name in self.chain:
            verdict = self._ask(name, copy.event)
            if verdict in FINAL:
                return self._settled(copy, verdict)
            if verdict == "rejected" and self._known(copy.event):
                return self._settled(copy, "duplicate")
            if verdict != "proceed":
                return verdict
        return "proceed"

    def _known(self, event: Event) -> bool:
        return not KNOW_COPIES.isdisjoint(self.chain) and event.identity in self._identities

    def _settled(self, copy: _Copy, verdict: str) -> str:
        for name in self.chain:
            early = self._ask(name, copy.event)
            if early in {"park", "wait"}:
                return early
        if not copy.tried:
            return verdict
        return "duplicate" if self._known(copy.event) else "overtaken"

    def _ask(self, name: str, event: Event) -> str:
        if name in GUARDS:
            return "proceed"
        if name in KNOW_COPIES:
            return "duplicate" if event.identity in self._identities else "proceed"
        if name == "precondition":
            return "proceed" if self._rows.get(event.key, event.place - 1) == event.place - 1 else "rejected"
        if name == "state_machine":
            return _compared(event.state, self._states.get(event.key, 0), "proceed")
        if name == "sequence":
            return _compared(event.place, self._numbers.get(event.key, 0), "park")
        return _compared(event.place, self._versions.get(event.key, 0), "wait")

    def _handle(self, copy: _Copy) -> str:
        act = copy.event.act(copy.attempt)
        if act == "add":
            self.ends.effects.append(copy.event.identity)
            return "applied"
        self.ends.tried.add(copy.event.identity)
        if act == "reject":
            return "rejected"
        return "retry" if copy.attempt < ATTEMPTS else "attempts-exhausted"

    def _record(self, event: Event, verdict: str) -> None:
        key = event.key
        if verdict == "applied":
            self._identities.add(event.identity)
            self._states[key] = event.state
            self._rows[key] = event.place
        else:
            self.ends.settled.add(event.identity)
        self._numbers[key] = max(self._numbers.get(key, 0), event.place)
        if key in self._rows:
            self._versions[key] = max(self._versions.get(key, 0), event.place)

    def _follow(self, key: str) -> None:
        """Deliver what was parked for the numbers that have come."""
        turn = [
            parked
            for parked in self._parked
            if parked.event.key == key and parked.event.place <= self._numbers.get(key, 0) + 1
        ]
        for copy in sorted(turn, key=lambda one: one.event.place)[:1]:
            self._parked.remove(copy)
            self._deliver(copy, "")
            self._follow(key)

    def _has_room(self, copy: _Copy) -> bool:
        return sum(parked.event.key == copy.event.key for parked in self._parked) < ROOM

    def _bury(self, copy: _Copy, reason: str) -> None:
        self.ends.dead.setdefault(copy.event.identity, []).append(reason)


def _compared(place: int, here: int, early: str) -> str:
    if place == here:
        return "duplicate"
    if place < here:
        return "stale"
    return "proceed" if place == here + 1 else early


def options_of(name: str, columns: str = "") -> Mapping[str, object]:
    """Return a strategy's options, so that it compares what the reference compares.

    Args:
        name: the strategy's.
        columns: what the names of a consumer's own columns begin with.
    """
    waits = {"gap_timeout": "1h", "on_gap": "dead_letter"}
    options: dict[str, Mapping[str, object]] = {
        "state_machine": {"to": "body.to", "states": STATES},
        "sequence": {"order": "body.place", "park_limit": ROOM, **waits},
        "optimistic_lock": {
            "entity": {"table": "history_rows", "key": "name", "version": f"{columns}version"},
            "version": "body.place",
            **waits,
        },
        "precondition": {
            "entity": {"table": "history_rows", "key": "name"},
            "where": {f"{columns}place": "body.before"},
        },
        "pessimistic_lock": {"table": "history_rows", "key": "name"},
        "tiered": {"redis": False, "bloom": True},
        "redis_lock": {"name": "history-{key}"},
    }
    return options.get(name, {})
