"""Puts what a rehearsal has found into words: groups of messages that end differently, with examples."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncemq.engine.recording.lines import moment
from oncemq.rehearsal.run import Rehearsal
from oncemq.rehearsal.stories import End

EXAMPLES: Final = 3
_VARIES: Final = re.compile(r"'[^']*'|\b\d+\b")


@dataclass
class Change:
    """Messages that end in another way, for the same reason.

    Attributes:
        before: how they ended.
        after: how they end.
        reason: why, without what differs from message to message.
        count: how many.
        examples: key, time and reason of some.
    """

    before: End
    after: End
    reason: str
    count: int = 0
    examples: list[tuple[str, float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What a person is told of it."""
        noun = "message that was" if self.count == 1 else "messages that were"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.count} {noun} {self.before.of(self.count)} would be {self.after.of(self.count)}{why}"

    @property
    def runs_again(self) -> bool:
        """Whether handlers run for what they did not run for."""
        return self.after is End.APPLIED


def changes_of(found: Rehearsal) -> list[Change]:
    """Return the groups of messages that end differently, the largest first."""
    groups: dict[tuple[End, End, str], Change] = {}
    for number, before, after in _changed(found):
        story = found.stories[number]
        reason = found.verdicts.reasons.get(number, "")
        general = _VARIES.sub("…", reason)
        change = groups.setdefault((before, after, general), Change(before, after, general))
        change.count += 1
        if len(change.examples) < EXAMPLES:
            change.examples.append((story.first.key, story.first.at, reason))
    return sorted(groups.values(), key=lambda change: -change.count)


def _changed(found: Rehearsal) -> Iterator[tuple[int, End, End]]:
    """Yield messages that end differently, with before and after; which of two copies is applied makes no difference."""
    by_content: dict[tuple[str, str], list[tuple[int, End]]] = {}
    for number, (story, after) in enumerate(zip(found.stories, found.verdicts.ends, strict=True)):
        if after is not None and after is not story.end:
            content = (story.first.identity, story.first.print_)
            by_content.setdefault(content, []).append((number, after))
    for copies in by_content.values():
        before, other = [found.stories[number].end for number, _ in copies], []
        for number, after in copies:
            if after in before:
                before.remove(after)
            else:
                other.append((number, after))
        yield from ((number, was, after) for (number, after), was in zip(other, before, strict=True))


def lines_of(found: Rehearsal, changes: Sequence[Change], left_out: Sequence[str]) -> Iterator[str]:
    """Yield the report."""
    header, stories = found.recording.header, found.stories
    if stories:
        first, last = moment(stories[0].first.at), moment(stories[-1].first.at)
        yield f"rehearsed {len(stories) - found.unread} messages of {header['consumer']}, recorded {first} to {last}"
    else:
        yield "the recording has no messages"
    if not found.recording.whole:
        yield "the recording was cut off: it ends earlier than was asked for"
    if found.recording.lost:
        yield f"{found.recording.lost} arrivals are not in the recording: a process had no room for them"
    yield ""
    same = sum(
        found.verdicts.ends[number] is story.end for number, story in enumerate(stories) if story.readable
    )
    yield f"{_messages(same)} as {'it did' if same == 1 else 'they did'}"
    for change in changes:
        yield change.text
        for key, at, reason in change.examples:
            yield f"    {key} at {moment(at)}" + (f": {reason}" if reason != change.reason else "")
    if found.unread:
        yield f"{found.unread} could not be read when they were recorded, and are left out"
    yield ""
    yield from _protection(found)
    yield ""
    yield _cost(found)
    for text in found.words:
        yield f"assumed: {text}"
    for text in left_out:
        yield f"not rehearsed: {text}"


def _protection(found: Rehearsal) -> Iterator[str]:
    protection = found.protection
    again = _in_flight(found)
    if not protection.problems:
        yield "records from before the change protect: " + "; ".join(dict.fromkeys(protection.words))
        return
    yield "records from before the change do not protect: every message in flight at the change would run again"
    for text in protection.problems:
        yield f"    {text}"
    if again:
        yield f"    {again} messages of the recording came more than once; a copy that comes after the change is applied again"


def _messages(count: int) -> str:
    return "1 message ends" if count == 1 else f"{count} messages end"


def _in_flight(found: Rehearsal) -> int:
    return sum(story.end is End.DUPLICATE for story in found.stories)


def _cost(found: Rehearsal) -> str:
    count = max(1, len(found.stories) - found.unread)
    cost = found.cost
    return (
        f"cost: {cost.statements} statements and {cost.commits} commits for {count} messages "
        f"({cost.statements / count:.2f} and {cost.commits / count:.3f} each), in units of up to 500"
    )


def record_of(found: Rehearsal, changes: Sequence[Change], left_out: Sequence[str]) -> Mapping[str, Any]:
    """Return the report for scripts."""
    return {
        "messages": len(found.stories) - found.unread,
        "unread": found.unread,
        "changes": [
            {
                "before": change.before.value,
                "after": change.after.value,
                "reason": change.reason,
                "count": change.count,
                "examples": [{"key": key, "at": at, "reason": reason} for key, at, reason in change.examples],
            }
            for change in changes
        ],
        "records_protect": not found.protection.problems,
        "why_not": found.protection.problems,
        "statements": found.cost.statements,
        "commits": found.cost.commits,
        "assumed": found.words,
        "left_out": list(left_out),
        "whole": found.recording.whole,
        "lost": found.recording.lost,
    }
