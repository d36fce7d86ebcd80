"""The chains that the strategy suite runs, each under a name for test ids."""

from dataclasses import replace
from itertools import permutations

from oncemq.testing.strategy_suite import ChainSpec
from oncemq.testing.strategy_suite.bench import STATES

UNIQUE = ("unique_key", {})
UNIQUE_FULL = ("unique_key", {"fingerprint": ["body.amount"], "result": True})
MACHINE = ("state_machine", {"to": "body.to", "states": STATES})
BRANCHING = (
    "state_machine",
    {
        "to": "body.to",
        "initial": STATES,
        "transitions": {state: STATES[place + 1 :] for place, state in enumerate(STATES)},
    },
)

SEQUENCE = ("sequence", {})
MACHINE_PARKING = ("state_machine", {"to": "body.to", "states": STATES, "early": "park"})

TIERED = ("tiered", {})
TIERED_FULL = ("tiered", {"bloom": True, "fingerprint": ["body.amount"], "result": True})

ROWS = {"table": "$TABLE", "key": "entity"}
MACHINE_ON_ROWS = (
    "state_machine",
    {"to": "body.to", "states": STATES, "entity": {**ROWS, "state": "state"}},
)
OPTIMISTIC = ("optimistic_lock", {"entity": {**ROWS, "version": "version"}, "early": "run"})
OPTIMISTIC_PARKING = ("optimistic_lock", {"entity": {**ROWS, "version": "version"}, "early": "park"})
PESSIMISTIC = ("pessimistic_lock", ROWS)
PRECONDITION = ("precondition", {"entity": ROWS, "where": {"blocked": None}, "required": False})

CHAINS = {
    "unique_key": ChainSpec([UNIQUE]),
    "unique_key-full": ChainSpec([UNIQUE_FULL], compares_content=True),
    "state_machine": ChainSpec([MACHINE], late_is_stale=True),
    "state_machine-transitions": ChainSpec([BRANCHING], late_is_stale=True),
    "unique_key+state_machine": ChainSpec([UNIQUE_FULL, MACHINE], late_is_stale=True, compares_content=True),
    "state_machine+unique_key": ChainSpec([MACHINE, UNIQUE], late_is_stale=True),
    "sequence": ChainSpec([SEQUENCE], parks=True),
    "state_machine-parking": ChainSpec([MACHINE_PARKING], parks=True),
    "unique_key+sequence": ChainSpec([UNIQUE_FULL, SEQUENCE], parks=True, compares_content=True),
}

ON_ROWS = {
    "optimistic_lock": ChainSpec([OPTIMISTIC], late_is_stale=True, entity=True, waits=False),
    "optimistic_lock-parking": ChainSpec([OPTIMISTIC_PARKING], entity=True, parks=True, waits=False),
    "pessimistic_lock+unique_key": ChainSpec([PESSIMISTIC, UNIQUE], entity=True),
    "unique_key+precondition": ChainSpec([UNIQUE, PRECONDITION], entity=True),
}
"""Strategies that work on the user's own table."""

TWO_PHASE = ("two_phase", {"verify": "$VERIFY", "lease": "1s", "fingerprint": ["body.amount"]})

DIRECT = {
    "two_phase": ChainSpec([TWO_PHASE], waits=False, direct=True, doubts=True, compares_content=True),
}
"""Strategies for effects outside the database."""

_ONES = {
    "unique_key": UNIQUE,
    "state_machine": MACHINE_ON_ROWS,
    "optimistic_lock": OPTIMISTIC,
    "pessimistic_lock": PESSIMISTIC,
    "precondition": PRECONDITION,
}
_ORDERING = {"state_machine", "optimistic_lock"}
_KNOWING_COPIES = {"unique_key", *_ORDERING}

PAIRS = {
    f"{first}+{second}": ChainSpec(
        [_ONES[first], _ONES[second]], late_is_stale=not _ORDERING.isdisjoint({first, second}), entity=True
    )
    for first, second in permutations(_ONES, 2)
    if not _KNOWING_COPIES.isdisjoint({first, second})
}
"""Every ordered pair in which one of the two knows a copy from a new message."""

TIERS = {
    "tiered": ChainSpec([TIERED]),
    "tiered-full": ChainSpec([TIERED_FULL], compares_content=True),
    "state_machine+tiered": ChainSpec([MACHINE, TIERED], late_is_stale=True),
}
"""Strategies that need Redis beside the database."""

FLAG = ("redis_flag", {"verify": "$VERIFY", "lease": "1s", "fingerprint": ["body.amount"]})

FLAGS = {"redis_flag": ChainSpec([FLAG], waits=False, direct=True, doubts=False, compares_content=True)}
"""Flags in Redis, for effects outside; what is in doubt leaves its trace there, and none in the database."""

LOCK = ("redis_lock", {"name": "$LOCKS-{key}"})

LOCKED = {
    "redis_lock+unique_key": ChainSpec([LOCK, UNIQUE_FULL], compares_content=True, defers=True),
    "redis_lock+unique_key+state_machine": ChainSpec(
        [LOCK, UNIQUE, MACHINE], late_is_stale=True, defers=True
    ),
}
"""A lock before what decides."""

LOCKED_DIRECT = {
    "redis_lock+two_phase": ChainSpec(
        [LOCK, TWO_PHASE], direct=True, defers=True, doubts=True, compares_content=True
    ),
}


def under_locks_of(chain: ChainSpec, prefix: str, **options: str) -> ChainSpec:
    """Return a chain whose locks have names that no other test uses, and these options."""
    (lock, given), *others = chain.strategies
    named = {**given, **options, "name": given["name"].replace("$LOCKS", prefix)}
    return replace(chain, strategies=[(lock, named), *others])
