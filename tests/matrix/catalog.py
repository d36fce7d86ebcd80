"""What each strategy is paired with the others as: one entry for each, from which all pairs are made."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any

from oncemq.contracts.checks import Effects
from oncemq.contracts.verification import Answer, NotDone
from oncemq.message.envelope import Envelope


class Sequel(StrEnum):
    """What a strategy promises about the messages of one key that come in another order."""

    ANY = "each of them once"
    FORWARD = "none after a newer one; the newest once"
    STRICT = "each of them once, in order"


@dataclass(frozen=True, slots=True)
class Entry:
    """One strategy.

    Args:
        options: as the configuration writes them, on the matrix's tables and messages.
        decides: it remembers what was applied; else it guards.
        effects: where the effects may be that it can protect.
        sequel: its promise about order.
        twice: it says that a message may take effect twice.
        redis: it needs Redis.
        doubts: a handler that raised leaves a row in the ledger until someone has looked.
        compares_places: it knows which places are taken, and by whom it does not.
        refuses_copies: a copy is no duplicate to it, but a message that does not fit: a dead letter, unless the other
            one knows copies.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    decides: bool = True
    effects: frozenset[Effects] = frozenset({Effects.DATABASE})
    sequel: Sequel = Sequel.ANY
    twice: bool = False
    redis: bool = False
    doubts: bool = False
    refuses_copies: bool = False
    compares_places: bool = False


STATES = ("s1", "s2", "s3")
"""Message number n of a key asks for state number n."""

_ROW = {"table": "matrix_things", "key": "name"}
_OUTSIDE = frozenset({Effects.EXTERNAL})
_BOTH = frozenset(Effects)


def unasked(_envelope: Envelope) -> Answer:
    """Stand for the user's `verify`."""
    return NotDone()


CATALOG: Mapping[str, Entry] = {
    "unique_key": Entry(),
    "state_machine": Entry(
        {"to": "body.state", "states": STATES, "entity": {**_ROW, "state": "state"}},
        sequel=Sequel.FORWARD,
        compares_places=True,
    ),
    "optimistic_lock": Entry(
        {"entity": {**_ROW, "version": "version"}}, sequel=Sequel.STRICT, compares_places=True
    ),
    "precondition": Entry(
        {"entity": _ROW, "where": {"number": "body.before"}, "otherwise": "retry"},
        sequel=Sequel.STRICT,
        refuses_copies=True,
        compares_places=True,
    ),
    "sequence": Entry(sequel=Sequel.STRICT, compares_places=True),
    "pessimistic_lock": Entry(_ROW, decides=False),
    "redis_lock": Entry({"name": "matrix-{key}"}, decides=False, effects=_BOTH, redis=True),
    "tiered": Entry({"bloom": True}, redis=True),
    "redis_flag": Entry({"verify": unasked}, effects=_OUTSIDE, redis=True),
    "two_phase": Entry({"verify": unasked}, effects=_OUTSIDE, doubts=True),
    "none": Entry(effects=_BOTH, twice=True),
}
"""A new strategy is one entry here."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two strategies in order, and where the effects of their consumer are."""

    first: str
    second: str
    effects: Effects

    def __str__(self) -> str:
        return f"{self.first}+{self.second}-{self.effects}"

    def consumer(self, run: str) -> str:
        """Return the name of this pair's consumer in a run of the matrix."""
        return f"{run}-{self.first}-{self.second}-{self.effects}"

    @property
    def entries(self) -> tuple[Entry, Entry]:
        """What the catalog says of the two."""
        return CATALOG[self.first], CATALOG[self.second]

    def strategies(self, verify: Callable[[Envelope], Answer] = unasked) -> list[Mapping[str, Any]]:
        """Return the two as a consumer's configuration lists them; `verify` is asked about effects in doubt."""
        return [
            {
                name: {
                    key: verify if value is unasked else value for key, value in CATALOG[name].options.items()
                }
            }
            for name in (self.first, self.second)
        ]

    @property
    def sequel(self) -> Sequel:
        """What the two promise together: the strictest one holds."""
        strictest = list(Sequel)
        return max((entry.sequel for entry in self.entries), key=strictest.index)

    @property
    def twice(self) -> bool:
        """A message may take effect twice."""
        return any(entry.twice for entry in self.entries)

    @property
    def redis(self) -> bool:
        """One of them needs Redis."""
        return any(entry.redis for entry in self.entries)

    @property
    def doubts(self) -> bool:
        """One of them keeps a trace of a handler that raised."""
        return any(entry.doubts for entry in self.entries)

    @property
    def refuses_copies(self) -> bool:
        """One of them may make a dead letter of a copy that the other does not know."""
        return any(entry.refuses_copies for entry in self.entries)


def every_pair() -> Iterator[Pair]:
    """Yield every ordered pair, a strategy with itself included, for effects in and outside the database."""
    for first, second, effects in product(CATALOG, CATALOG, Effects):
        yield Pair(first, second, effects)
