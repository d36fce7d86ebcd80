"""Divides a take into units: each runs on one shard, and through one chain of strategies."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from oncemq.common.sharding import Layout
from oncemq.message.envelope import Delivery

Thing = TypeVar("Thing")


class Placement:
    """Where messages run.

    Args:
        layout: which shard a key belongs to; None without shards.
        chains: the number of the chain by `Delivery.route`; empty where all have the same.
        in_order: refused messages hold their keys, so those that have one keep their places, too.

    Attributes:
        places: how many places there are: shards, for each chain.
    """

    __slots__ = ("_chains", "_in_order", "_layout", "_shards", "places")

    def __init__(self, layout: Layout | None, chains: Sequence[int] = (), *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._layout = layout
        self._chains = chains
        self._shards = 1 if layout is None else layout.shards
        self.places = self._shards * (max(chains, default=0) + 1)

    def select(self, things: Sequence[Thing]) -> Callable[[Delivery], Thing]:
        """Return a function that selects the entry of a message's place.

        Args:
            things: those of the first chain for each shard, then those of the next chain.
        """
        layout, chains, shards = self._layout, self._chains, self._shards
        if self.places == 1:
            (only,) = things
            return lambda _delivery: only
        if layout is None:
            return lambda delivery: things[chains[delivery.route]]
        if not chains:
            return lambda delivery: things[layout.shard_of(delivery.key)]
        return lambda delivery: things[chains[delivery.route] * shards + layout.shard_of(delivery.key)]

    def units(self, taken: Sequence[Delivery], limit: int) -> Iterator[list[Delivery]]:
        """Return the units of a take, of at most `limit` messages where there are several places."""
        if self.places == 1:
            return segments(taken, in_order=self._in_order)
        whole = segments(taken, in_order=self._in_order)
        if self._chains:
            whole = by_chain(whole, self._chains)
        return split(whole, self._layout, limit)


def segments(taken: Sequence[Delivery], *, in_order: bool = False) -> Iterator[list[Delivery]]:
    """Yield the units of one take: crash suspects alone, all others together, then the refused ones, which run nowhere.

    A refused message in the middle must not divide a unit: each part would pay for a transaction.

    Args:
        taken: the take.
        in_order: refused messages with a key come at their places all the same: later ones of the key wait for them.
    """
    together: list[Delivery] = []
    refused: list[Delivery] = []
    for delivery in taken:
        if delivery.suspect or (in_order and delivery.refusal is not None and delivery.known_key):
            yield from filter(None, (together, refused))
            together, refused = [], []
            yield [delivery]
        elif delivery.refusal is not None:
            refused.append(delivery)
        else:
            together.append(delivery)
    yield from filter(None, (together, refused))


def by_chain(whole: Iterator[list[Delivery]], chains: Sequence[int]) -> Iterator[list[Delivery]]:
    """Yield units of one chain each, as few as the order of each key allows.

    The units are numbered, and take turns in their chains; a message joins the first one of its chain that is not before that
    of its key's last message.
    """
    count = max(chains) + 1
    for together in whole:
        units: dict[int, list[Delivery]] = {}
        last: dict[str, int] = {}
        for delivery in together:
            after = last.get(delivery.key, 0)
            number = after + (chains[delivery.route] - after) % count
            last[delivery.key] = number
            units.setdefault(number, []).append(delivery)
        for number in sorted(units):
            yield units[number]


def split(whole: Iterator[list[Delivery]], layout: Layout | None, limit: int) -> Iterator[list[Delivery]]:
    """Yield units of one shard each, of at most `limit` messages; a key's messages stay in order."""
    for together in whole:
        shards: dict[int, list[Delivery]] = {}
        if layout is None:
            shards[0] = together
        else:
            for delivery in together:
                shards.setdefault(layout.shard_of(delivery.key), []).append(delivery)
        for mine in shards.values():
            yield from (mine[start : start + limit] for start in range(0, len(mine), limit))
