"""Puts the arrivals of one message together: its retries, its wait in the ledger, and how it ended."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from oncemq.contracts.verdict import Outcome
from oncemq.engine.recording.lines import DEAD
from oncemq.rehearsal.recording_file import Arrival


class End(StrEnum):
    """How a message ended."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    EXPIRED = "expired"
    DEAD = "dead letter"
    WAITING = "waiting"

    def of(self, count: int) -> str:
        """Return it in words, for so many messages."""
        if self not in (End.DUPLICATE, End.DEAD):
            return self.value
        return f"a {self.value}" if count == 1 else f"{self.value}s"


ENDS: Final = {
    Outcome.PROCEED.value: End.APPLIED,
    Outcome.DUPLICATE.value: End.DUPLICATE,
    Outcome.STALE.value: End.STALE,
    Outcome.EXPIRED.value: End.EXPIRED,
    Outcome.REJECT.value: End.DEAD,
    Outcome.CONFLICT.value: End.DEAD,
    DEAD: End.DEAD,
}
_GOES_ON: Final = frozenset({Outcome.RETRY.value, Outcome.PARKED.value, Outcome.WAIT.value})


class Try(StrEnum):
    """What the handler did with a message."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"


@dataclass(slots=True, eq=False)
class Story:
    """One message, from its first arrival to its end.

    Attributes:
        first: its first arrival.
        last: outcome of its latest arrival.
        attempt: of that arrival.
        tries: what the handler did, each time that it ran.
        code: the reason of its dead letter.
        latest: number of its latest arrival, in the order of all.
    """

    first: Arrival
    last: str
    attempt: int
    tries: list[Try] = field(default_factory=list)
    code: str = ""
    latest: int = 0

    @property
    def end(self) -> End:
        """How it ended."""
        return ENDS.get(self.last, End.WAITING)

    @property
    def readable(self) -> bool:
        """Whether key and identity are known."""
        return bool(self.first.key)

    def add(self, number: int, arrival: Arrival) -> None:
        """Add its next arrival."""
        self.latest = number
        self.last, self.attempt = arrival.outcome, arrival.attempt
        self.code = arrival.code
        if arrival.tried:
            self.tries.append(_TRIES.get(arrival.outcome, Try.FAILED))

    def goes_on_with(self, arrival: Arrival) -> bool:
        """Return whether an arrival of the same message is its next one, and no copy of the message."""
        if self.last == Outcome.RETRY.value:
            return arrival.parked or arrival.attempt > self.attempt
        if self.last == Outcome.PARKED.value:
            return arrival.parked
        return self.last == Outcome.WAIT.value and not arrival.parked


_TRIES: Final = {Outcome.PROCEED.value: Try.DONE, Outcome.REJECT.value: Try.REJECTED}


def stories_of(arrivals: Iterable[Arrival]) -> list[Story]:
    """Return the messages in the order of their first arrivals."""
    found: list[Story] = []
    latest: dict[tuple[str, str], Story] = {}
    open_: dict[tuple[str, str], list[Story]] = {}
    for number, arrival in enumerate(arrivals):
        same = (arrival.identity or arrival.message_id, arrival.print_)
        if arrival.outcome == DEAD:
            _bury(open_.get(same, []), latest.get(same), arrival)
            continue
        waiting = open_.get(same, [])
        story = next((each for each in waiting if each.goes_on_with(arrival)), None)
        if story is None:
            story = Story(arrival, "", 0)
            found.append(story)
        else:
            waiting.remove(story)
        story.add(number, arrival)
        latest[same] = story
        if story.last in _GOES_ON:
            open_.setdefault(same, []).append(story)
    return found


def _bury(waiting: list[Story], latest: Story | None, arrival: Arrival) -> None:
    """Let the message end that became a dead letter: one that waited, else one that was rejected."""
    story = next((each for each in waiting if each.attempt == arrival.attempt), latest)
    if story is None:
        return
    if story in waiting:
        waiting.remove(story)
    story.last = story.last if ENDS.get(story.last) is End.DEAD else DEAD
    story.code = arrival.code


def known_before(stories: Sequence[Story]) -> list[Story]:
    """Return messages that were duplicates of what had been applied before the recording began."""
    applied: set[str] = set()
    found = []
    for story in stories:
        identity = story.first.identity
        if story.end is End.DUPLICATE and identity not in applied:
            found.append(story)
        applied.add(identity)
    return found
