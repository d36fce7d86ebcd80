"""Early messages: parked whole, followed up in order, by the process that closes the gap or, after a crash, another."""

import os
import random
import signal
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.errors import Retry
from oncemq.ledger.messages import parking
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.processes import processes
from oncemq.testing.strategy_suite.base import MakeBench, SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

DEADLINE = 90.0
KEYS = 30
NUMBERS = 9


class Parking(SuitePart):
    """Guarantees of `early: park`; skipped where a chain parks nothing."""

    @pytest.fixture(autouse=True)
    def only_where_parked(self, request: pytest.FixtureRequest) -> None:
        """Skip these tests for other chains."""
        if (
            request.function.__qualname__.startswith("Parking.")
            and not request.getfixturevalue("chain").parks
        ):
            pytest.skip("this chain parks nothing")

    def test_early_messages_follow_in_their_order(self, bench: Bench) -> None:
        """3 and 2 wait, 1 runs, and both follow it; nothing is left."""
        assert bench.deliver(message("a", 3), message("b", 1), message("a", 2)) == [
            Outcome.PARKED,
            Outcome.PROCEED,
            Outcome.PARKED,
        ]
        assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
        assert bench.effects() == [("b", 1), ("a", 1), ("a", 2), ("a", 3)]
        assert waiting(bench) == 0

    def test_what_is_parked_leaves_only_its_row(self, bench: Bench) -> None:
        """No dedup record, no state, no number: otherwise the message would be its own duplicate."""
        assert bench.deliver(message("a", 2)) == [Outcome.PARKED]
        assert bench.traces() == waiting(bench) == 1
        assert bench.effects() == []

    def test_copies_of_an_early_message_wait_once(self, bench: Bench) -> None:
        """In one unit and in the next; it takes effect once."""
        assert bench.deliver(message("a", 2), message("a", 2)) == [Outcome.PARKED] * 2
        assert bench.deliver(message("a", 2)) == [Outcome.PARKED]
        assert waiting(bench) == 1
        bench.deliver(message("a", 1))
        assert bench.effects() == [("a", 1), ("a", 2)]

    def test_what_follows_is_as_it_was_sent(self, bench: Bench) -> None:
        """Body, headers, key and identity of a parked message are those of the delivery."""
        seen: list[Any] = []

        def handler(body: Any, session: Session) -> None:
            seen.append(dict(body))
            bench.apply(body, session)

        bench.handler = handler
        bench.deliver(message("a", 2, amount=7))
        bench.deliver(message("a", 1))
        assert seen[1] == {"id": "a", "n": 2, "to": "s2", "amount": 7}

    def test_a_follow_up_that_fails_stays_parked(self, bench: Bench) -> None:
        """It has no effect and leaves only its row, which can be taken again."""

        def handler(body: Any, session: Session) -> None:
            if body["n"] == 2:
                raise Retry("not yet")
            bench.apply(body, session)

        bench.handler = handler
        bench.deliver(message("a", 2))
        bench.deliver(message("a", 1))
        assert bench.followed == [Outcome.RETRY]
        assert (waiting(bench), bench.effects()) == (1, [("a", 1)])

    def test_a_failed_closer_wakes_no_waiter(self, bench: Bench) -> None:
        """When the message that closes the gap fails, messages behind it keep waiting."""

        def fail(body: Any, session: Session) -> None:
            bench.apply(body, session)
            session.flush()
            raise RuntimeError("not today")

        bench.deliver(message("a", 2))
        bench.handler = fail
        assert bench.deliver(message("a", 1)) == [Outcome.RETRY]
        assert bench.followed == []
        bench.handler = bench.apply
        assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
        assert bench.effects() == [("a", 1), ("a", 2)]

    @pytest.mark.parametrize("point", ["saved", "before-commit", "committed"])
    def test_the_closer_dies(
        self, make_bench: MakeBench, chain: ChainSpec, url: str, scope: str, point: str
    ) -> None:
        """Killed before the commit: nothing has happened; after it: any process takes the messages that it woke."""
        clock = FakeClock()
        bench = make_bench(clock=clock)
        bench.deliver(message("a", 2), message("a", 3))
        victim = processes().Process(target=close_and_die, args=(url, chain, scope, point))
        victim.start()
        victim.join(DEADLINE)
        assert victim.exitcode == -signal.SIGKILL
        bench.deliver(message("a", 1))
        clock.advance(timedelta(minutes=1))
        bench.sweep()
        assert bench.effects() == [("a", 1), ("a", 2), ("a", 3)]
        assert waiting(bench) == 0

    def test_two_take_the_same_row(self, make_bench: MakeBench) -> None:
        """A process that took a parked message and was too slow finds that another process owns it."""
        clock = FakeClock()
        bench, slow = make_bench(clock=clock), make_bench(clock=clock)
        bench.deliver(message("a", 2))
        slow.hold_back = True
        slow.deliver(message("a", 1))
        clock.advance(timedelta(minutes=1))
        bench.sweep()
        assert bench.followed == [Outcome.PROCEED]
        slow.hold_back = False
        slow.follow(slow.kept)
        assert slow.followed[0] in {Outcome.VOID, Outcome.DUPLICATE, Outcome.STALE}
        assert bench.effects() == [("a", 1), ("a", 2)]

    def test_no_wake_up_is_lost_between_processes(
        self, bench: Bench, chain: ChainSpec, url: str, scope: str
    ) -> None:
        """Two processes share a shuffled stream: every parked message follows, in order, without any sweep."""
        start = processes().Process
        workers = [start(target=deliver_half, args=(url, chain, scope, half)) for half in (0, 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(DEADLINE)
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert waiting(bench) == 0
        in_order(bench.effects())

    def test_a_shuffled_stream_is_applied_in_order(self, bench: Bench) -> None:
        """With copies, in units of any size."""
        draw = random.Random(3)  # noqa: S311 - a repeatable shuffle
        messages = [message(f"k{key}", number) for key in range(KEYS) for number in range(1, NUMBERS + 1)] * 2
        draw.shuffle(messages)
        while messages:
            size = draw.randint(1, 40)
            bench.deliver_all(*messages[:size])
            messages = messages[size:]
        assert waiting(bench) == 0
        in_order(bench.effects())


def waiting(bench: Bench) -> int:
    """Return how many messages of the bench's consumer are parked."""
    ours = select(func.count()).select_from(parking.TABLE).where(parking.TABLE.c.consumer == bench.scope)
    with bench.engine.connect() as connection:
        return int(connection.execute(ours).scalar_one())


def in_order(effects: list[tuple[str, int]]) -> None:
    """Require that every key's numbers were applied once, in order."""
    by_key: dict[str, list[int]] = {}
    for key, number in effects:
        by_key.setdefault(key, []).append(number)
    assert by_key == {f"k{key}": list(range(1, NUMBERS + 1)) for key in range(KEYS)}


def close_and_die(url: str, chain: ChainSpec, scope: str, point: str) -> None:
    """Deliver the first message and die on the way, long ago; runs in a separate process."""

    def die(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    # Its claims have expired by the database's clock, too: a process whose clock is ahead takes nothing from others.
    Bench(url, chain, scope, point=die, clock=FakeClock()).deliver(message("a", 1))


def deliver_half(url: str, chain: ChainSpec, scope: str, half: int) -> None:
    """Deliver every second number of each key, shuffled, in small units; runs in a separate process."""
    bench = Bench(url, chain, scope)
    draw = random.Random(half)  # noqa: S311 - a repeatable shuffle
    messages = [
        message(f"k{key}", number)
        for number in range(1, NUMBERS + 1)
        for key in range(KEYS)
        if (key + number) % 2 == half
    ]
    draw.shuffle(messages)
    for start in range(0, len(messages), 7):
        bench.deliver_all(*messages[start : start + 7])
    bench.close()
