"""Compares what a random program leaves behind in units with what it leaves behind one message a transaction."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from alone.programs import Found, Manner, Program, outcome_in_order, outcome_of, program, tries_of


def differences(engine: Engine, seed: int) -> list[str]:
    """Return what differs for the program of this number, in words; nothing if it cannot tell that it ran in units."""
    with _without_collector():
        return _differences(engine, seed)


@contextmanager
def _without_collector() -> Iterator[None]:
    """How long a session remembers an object that nothing refers to must not depend on the collector of garbage."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _differences(engine: Engine, seed: int) -> list[str]:
    chosen = program(seed)
    alone, order = tries_of(engine, chosen, Manner(1))
    told = []
    for manner in manners(seed, len(chosen.messages)):
        found, other = tries_of(engine, chosen, manner)
        if found != alone and not _could_be_alone(engine, chosen, found, (order, other)):
            told.append(f"program {seed} ({chosen.chain}) as {manner}: {_words(alone, found)}")
    if chosen.poison:
        without, healthy = _without(chosen, alone), outcome_of(engine, chosen.healthy, Manner(1))
        if without != healthy:
            told.append(f"program {seed} ({chosen.chain}) without its poison: {_words(without, healthy)}")
    return told


def manners(seed: int, messages: int) -> list[Manner]:
    """Return in which ways a program is run, beside one message a transaction."""
    sizes = {2 + seed % 4, messages} if messages < 40 else {messages}
    return [Manner(size, (None, None, 3)[(seed + size) % 3], guarded=seed % 2 == 1) for size in sizes]


def _could_be_alone(
    engine: Engine, chosen: Program, found: Found, orders: tuple[Sequence[str], Sequence[str]]
) -> bool:
    """Return whether one message a transaction leaves the same behind in the order in which the unit's tries ended.

    Messages of different keys have no order: those that go back behind a failed one of their key let others go first, as
    they do without units. What the messages of each key left behind must be in the same order; a failed try has none, since a
    message may be tried while an earlier one of its key waits for a retry.
    """
    alone, other = orders
    keys = {message["id"]: message["key"] for message in chosen.messages if message["id"] in found["records"]}
    if list(alone) == list(other) or _by_key(alone, keys) != _by_key(other, keys):
        return False
    return outcome_in_order(engine, chosen, other) == found


def _by_key(order: Sequence[str], keys: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the messages of each key in the order of their last tries."""
    found: dict[str, list[str]] = {}
    for name in reversed(order):
        ended = found.setdefault(keys[name], []) if name in keys else [name]
        if name not in ended:
            ended.append(name)
    return found


def _without(chosen: Program, found: Found) -> Found:
    """Return what was found, without the outcomes of the failing neighbours."""
    outcomes = {name: went for name, went in found["outcomes"].items() if name not in chosen.poison}
    return {**found, "outcomes": outcomes}


def _words(alone: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{what}: alone {alone[what]}, in units {found[what]}" for what in alone if alone[what] != found[what]
    )
