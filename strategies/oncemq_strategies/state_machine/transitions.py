"""Transitions between states: two ways to define which state may follow which, behind one interface."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from oncemq.registry import did_you_mean

V = TypeVar("V")


class Step(StrEnum):
    """Relation of a wanted state to the current one."""

    NEXT = "next"
    SAME = "same"
    LATE = "late"
    EARLY = "early"
    ENDED = "ended"
    IMPOSSIBLE = "impossible"


class Rules(Protocol):
    """The states and their order."""

    @property
    def states(self) -> Sequence[str]:
        """All states."""
        ...

    @property
    def cycle(self) -> Sequence[str]:
        """States through which an entity can return to the first of them; empty if it cannot."""
        ...

    def step(self, current: str | None, wanted: str) -> Step:
        """Classify the step from `current` to `wanted`; None = the entity has no state yet.

        Raises:
            LookupError: one of them is not a state; with a message for users.
        """
        ...


class OrderedStates:
    """States that follow each other in one line, such as created, paid, shipped."""

    def __init__(self, states: Sequence[str]) -> None:
        self.states = tuple(states)
        self.cycle: Sequence[str] = ()
        self._places: dict[str | None, int] = {state: place for place, state in enumerate(states)}
        self._places[None] = -1

    def step(self, current: str | None, wanted: str) -> Step:
        """See Rules; a state after the next one is early."""
        here, there = _find(self._places, current, wanted)
        if there == here:
            return Step.SAME
        if there < here:
            return Step.LATE
        return Step.NEXT if there == here + 1 else Step.EARLY


class Transitions:
    """States that branch: the successors of each are listed.

    Args:
        followers: the allowed successors of each state; states without any may be omitted.
        initial: allowed first states of an entity.
        final: states after which an entity asks for nothing more; none of them has a follower.
    """

    def __init__(
        self, followers: Mapping[str, Sequence[str]], initial: Sequence[str], final: Collection[str] = ()
    ) -> None:
        targets = [target for listed in followers.values() for target in listed]
        self.states = tuple(dict.fromkeys([*initial, *followers, *targets]))
        nodes: dict[str | None, Sequence[str]] = {state: followers.get(state, ()) for state in self.states}
        nodes[None] = initial
        self._final = frozenset(final)
        self._followers = {state: frozenset(listed) for state, listed in nodes.items()}
        self._reachable = {state: _reachable(state, self._followers) for state in nodes}
        self.cycle: Sequence[str] = self._find_cycle()

    def step(self, current: str | None, wanted: str) -> Step:
        """See Rules; a state reachable only through others is early, a possible predecessor is late, any after a final one ended."""
        followers, _ = _find(self._followers, current, wanted)
        if wanted in followers:
            return Step.NEXT
        if wanted == current:
            return Step.SAME
        if current in self._final:
            return Step.ENDED
        if wanted in self._reachable[current]:
            return Step.EARLY
        return Step.LATE if current in self._reachable[wanted] else Step.IMPOSSIBLE

    def _find_cycle(self) -> Sequence[str]:
        for state in self.states:
            ways, seen = list[tuple[str, ...]]([(state,)]), set[str]()
            while ways:
                way = ways.pop(0)
                for follower in self.states:
                    if follower not in self._followers[way[-1]]:
                        continue
                    if follower == state:
                        return (*way, state)
                    if follower not in seen:
                        seen.add(follower)
                        ways.append((*way, follower))
        return ()


def _reachable(state: str | None, followers: Mapping[str | None, frozenset[str]]) -> frozenset[str | None]:
    found: set[str | None] = set()
    todo: list[str | None] = [state]
    while todo:
        new = followers[todo.pop()] - found
        found |= new
        todo += new
    return frozenset(found)


def _find(known: Mapping[str | None, V], current: str | None, wanted: str) -> tuple[V, V]:
    try:
        return known[current], known[wanted]
    except KeyError:
        states = [state for state in known if state is not None]
        if wanted not in known:
            raise LookupError(f"unknown state {wanted!r}{did_you_mean(wanted, states)}") from None
        raise LookupError(
            f"the entity is in state {current!r}, which this consumer does not list{did_you_mean(str(current), states)}"
        ) from None
