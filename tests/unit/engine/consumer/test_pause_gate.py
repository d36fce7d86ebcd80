"""Whether a consumer's workers may run units now."""

import threading
from datetime import UTC, datetime

from oncemq.common.clock import SystemClock
from oncemq.engine.consumer.pause_gate import PauseGate


class StoppingClock:
    """Stops a gate as soon as someone asks how long to wait."""

    def __init__(self) -> None:
        self.gate: PauseGate | None = None

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return 0, and stop the gate."""
        if self.gate is not None:
            self.gate.stop()
        return 0.0


def test_an_open_gate_lets_pass() -> None:
    """No one waits while nothing is wrong."""
    PauseGate(SystemClock()).wait()


def test_a_stop_is_never_missed() -> None:
    """A stop between the look at the clock and the wait ends the wait at once."""
    clock = StoppingClock()
    gate = PauseGate(clock)
    gate.close()
    waiting = threading.Thread(target=gate.wait, daemon=True)
    clock.gate = gate
    waiting.start()
    waiting.join(0.3)
    assert not waiting.is_alive()


def test_pauses_grow_until_a_success() -> None:
    """Each further trouble closes it for longer, up to a limit; a success makes the next pause short again."""
    gate = PauseGate(SystemClock())
    pauses = [gate.close() for _ in range(8)]
    gate.succeeded()
    assert pauses[3] > 2 * pauses[0]
    assert max(pauses) <= 6.0
    assert gate.close() < 1.0


def test_a_success_says_how_long_the_trouble_lasted() -> None:
    """Without trouble there is nothing to say, and it is said once."""
    gate = PauseGate(SystemClock())
    quiet = gate.succeeded()
    gate.close()
    lasted = gate.succeeded()
    assert (quiet, lasted is not None, gate.succeeded()) == (None, True, None)
