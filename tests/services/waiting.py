"""How the services wait: for a condition, with a deadline, never for a fixed time."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Return whether the condition came true before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
