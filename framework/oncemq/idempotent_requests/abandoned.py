"""What becomes of a request whose first try ended without an answer while its effect may have happened."""

from collections.abc import Callable
from enum import Enum
from typing import Final, Literal

from oncemq.idempotent_requests.answer import Answer


class Abandoned(Enum):
    """What to do without asking anybody."""

    REFUSE = "refuse"
    RUN_AGAIN = "run again"


class Finding(Enum):
    """What a look at the effect's place may say, besides the answer that was given."""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


REFUSE: Final = Abandoned.REFUSE
"""Refuse every further try: a person must look. The default."""
RUN_AGAIN: Final = Abandoned.RUN_AGAIN
"""Run it again: for effects that bear it. A first try that outlives its lease may then run beside the second."""
NOT_DONE: Final = Finding.NOT_DONE
"""`verify` found that nothing happened: the request is carried out now."""
UNKNOWN: Final = Finding.UNKNOWN
"""`verify` could not tell: the request is refused, and asked about again next time."""

Verify = Callable[[], Answer | Literal[Finding.NOT_DONE, Finding.UNKNOWN]]
"""Finds out whether the effect has happened; an Answer is stored and given from then on."""
Recovery = Abandoned | Verify
