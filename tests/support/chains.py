"""The chains that the strategy suite runs, each under a name for test ids."""

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

CHAINS = {
    "unique_key": ChainSpec([UNIQUE]),
    "unique_key-full": ChainSpec([UNIQUE_FULL], compares_content=True),
    "state_machine": ChainSpec([MACHINE], late_is_stale=True),
    "state_machine-transitions": ChainSpec([BRANCHING], late_is_stale=True),
    "unique_key+state_machine": ChainSpec([UNIQUE_FULL, MACHINE], late_is_stale=True, compares_content=True),
    "state_machine+unique_key": ChainSpec([MACHINE, UNIQUE], late_is_stale=True),
}
