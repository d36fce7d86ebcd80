"""How the services wait: for a condition, with a deadline, never for a fixed time."""

import os
import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Return whether the condition came true before the deadline, which is later in tests on a slow machine."""
    # Not from `support.patience`: servers start without the packages of the tests.
    deadline = time.monotonic() + seconds * float(os.environ.get("ONCEMQ_TEST_PATIENCE") or 1)
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
