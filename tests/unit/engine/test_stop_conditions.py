"""When a run ends by itself, with which code, and what it says meanwhile."""

from dataclasses import replace
from datetime import timedelta

import pytest

from oncemq.cli import exit_codes
from oncemq.engine.stop_conditions import EXIT_LEFT_OVER, Ending, Retries, Until
from oncemq.observe.state import ConsumerState, PauseReason
from oncemq.testing.fake_clock import FakeClock

IDLE = timedelta(seconds=5)
LIVE = ConsumerState("award", subscribed=True)


class Run:
    """A run with one consumer, looked at second by second."""

    def __init__(self, deadline: timedelta | None = None) -> None:
        self.clock = FakeClock()
        self.retries = Retries(self.clock)
        self.row, self.parked, self.unsent, self.idle_for = LIVE, 0, 0, 0.0
        self.said: list[str] = []
        self.ending = Ending(
            Until(IDLE, deadline),
            self.clock,
            self.retries,
            lambda: (self.row,),
            lambda: {"award": self.parked},
            lambda: self.unsent,
            self.said.append,
        )

    def seconds(self, count: int, *, busy: bool = False) -> int | None:
        """Let time pass; returns the exit code if the run has ended."""
        for _ in range(count * 10):
            self.clock.advance(timedelta(seconds=0.1))
            self.idle_for = 0.0 if busy else self.idle_for + 0.1
            code = self.ending.code(self.idle_for)
            if code is not None:
                return code
        return None

    def retry(self, next_in: int) -> None:
        """Send a message on for a retry."""
        self.retries.retried("award", None, next_in=timedelta(seconds=next_in))  # type: ignore[arg-type]


def test_time_in_which_the_process_stood_still_is_not_quiet() -> None:
    """A process that was frozen could not receive what waits on the broker."""
    run = Run()
    assert run.seconds(2) is None
    run.clock.advance(timedelta(seconds=60))
    run.idle_for += 60
    assert run.seconds(2) is None
    assert run.seconds(2) == 0


def test_a_quiet_run_ends_well() -> None:
    """Nothing came for the given time, and nothing is left."""
    run = Run()
    assert run.seconds(5) is None
    assert run.seconds(1) == 0


def test_published_messages_of_a_killed_process_are_waited_for() -> None:
    """They are free when its hold on them has ended, after twenty seconds; then the run ends well."""
    run = Run()
    run.unsent = 2
    assert run.seconds(25) is None
    assert "2 published messages in the outbox" in run.said[-1]
    run.unsent = 0
    assert run.seconds(1) == 0


def test_published_messages_that_cannot_be_sent_end_a_run() -> None:
    """What a broker refuses again and again is left over, with a code for scripts."""
    run = Run()
    run.unsent = 1
    assert run.seconds(60) is None
    assert run.seconds(10) == EXIT_LEFT_OVER
    assert run.said[-1].endswith("1 published messages in the outbox")


def test_a_run_without_a_subscription_does_not_end_well() -> None:
    """What was never subscribed has received nothing because nothing could come; it ends as a failure in a minute."""
    run = Run()
    run.row = replace(LIVE, subscribed=False, detail="connection refused")
    assert run.seconds(59) is None
    assert run.seconds(10) == EXIT_LEFT_OVER
    assert run.said[0] == "does not end yet: award is not subscribed (connection refused)"
    assert run.said[-1].startswith(
        "ended, although something is left that makes no progress: award is not subscribed"
    )


def test_a_paused_run_says_why_and_ends() -> None:
    """A handler's table that is missing pauses the consumer, with its messages in hand; a script gets an answer."""
    run = Run()
    run.row = replace(LIVE, paused=PauseReason.SETUP, waiting=3, detail="no such table: points")
    assert run.seconds(100, busy=True) == EXIT_LEFT_OVER
    assert "award is paused (no such table: points); 3 messages of award in this process" in run.said[0]
    assert 10 <= len(run.said) <= 14


def test_a_connection_that_comes_back_is_waited_for() -> None:
    """A broker that restarts ends no run."""
    run = Run()
    run.row = replace(LIVE, subscribed=False)
    assert run.seconds(50) is None
    run.row = LIVE
    assert run.seconds(1) == 0


def test_retries_are_waited_for() -> None:
    """A run does not end before what it has sent on for a retry has come again."""
    run = Run()
    run.retry(20)
    run.retry(12)
    assert run.seconds(24) is None
    assert run.said[0] == "does not end yet: 2 retries, the next in 7s"
    assert run.seconds(2) == 0


def test_parked_messages_that_stay_have_a_code_of_their_own() -> None:
    """Their predecessor does not come: the run ends, and says what is left."""
    run = Run()
    run.parked = 2
    assert run.seconds(25) is None
    assert run.seconds(20) == EXIT_LEFT_OVER
    assert run.said[-1].endswith("2 parked messages of award")


@pytest.mark.parametrize("left", [True, False])
def test_a_deadline_bounds_the_run(left: bool) -> None:
    """It ends in any case; what was done by then decides about the code."""
    run = Run(timedelta(seconds=12))
    assert run.seconds(4, busy=True) is None
    assert run.seconds(10, busy=left) == (EXIT_LEFT_OVER if left else 0)
    if left:
        assert run.said[-1].startswith("the deadline of 12s has come; left over: ")


def test_the_code_is_documented() -> None:
    """The program's list of exit codes holds it."""
    assert exit_codes.LEFT_OVER == EXIT_LEFT_OVER
