"""Concurrent copies of a message in two transactions, in threads and in processes."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.testing.processes import processes
from oncemq.testing.strategy_suite.base import MakeBench, SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec

DEADLINE = 30.0
"""Seconds after which a test stops waiting for a signal."""
UNSEEN = 0.2
"""Seconds for which an event must not happen."""


class Concurrency(SuitePart):
    """A rival's transaction is waited for, and its result respected."""

    @pytest.mark.parametrize("number", [1, 2], ids=["new-entity", "known-entity"])
    @pytest.mark.parametrize("first_fails", [False, True], ids=["first-commits", "first-fails"])
    def test_a_copy_waits_for_the_first_one(
        self, make_bench: MakeBench, chain: ChainSpec, number: int, *, first_fails: bool
    ) -> None:
        """While the first copy runs the second waits or is deferred; it takes effect exactly if the first failed."""
        inside, finish, ran = threading.Event(), threading.Event(), threading.Event()

        def slow(body: Any, session: Session) -> None:
            first.apply(body, session)
            inside.set()
            finish.wait(DEADLINE)
            if first_fails:
                raise RuntimeError("not today")

        def quick(body: Any, session: Session) -> None:
            ran.set()
            second.apply(body, session)

        first, second = make_bench(), make_bench(handler=quick)
        before = [("a", known) for known in range(1, number)]
        for entity, known in before:
            assert first.deliver(message(entity, known)) == [Outcome.PROCEED]
        first.handler = slow
        with ThreadPoolExecutor(2) as threads:
            holder = threads.submit(first.deliver, message("a", number))
            assert inside.wait(DEADLINE)
            waiter: Future[list[Outcome]] = threads.submit(second.deliver, message("a", number))
            assert not ran.wait(UNSEEN) or not chain.waits
            if chain.defers:
                assert waiter.result(DEADLINE) == [Outcome.DEFER]
            assert chain.direct or chain.defers or not waiter.done()
            finish.set()
            assert holder.result(DEADLINE) == [Outcome.RETRY if first_fails else Outcome.PROCEED]
            outcomes = waiter.result(DEADLINE)
        if (chain.defers or not chain.waits) and outcomes == [Outcome.DEFER]:
            outcomes = second.deliver(message("a", number))
        assert outcomes == [Outcome.PROCEED if first_fails else Outcome.DUPLICATE]
        assert first.effects() == [*before, ("a", number)]

    def test_units_that_cross_do_not_lose_or_double(self, make_bench: MakeBench) -> None:
        """Two workers run the same messages in opposite order, repeatedly: one effect each."""
        benches = [make_bench(), make_bench()]
        messages = [message(f"k{number}", 1) for number in range(40)]
        orders = [messages, messages[::-1]]
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(_in_parts, bench, order) for bench, order in zip(benches, orders, strict=True)
            ]
            for run in runs:
                run.result(4 * DEADLINE)
        assert sorted(benches[0].effects()) == sorted((f"k{number}", 1) for number in range(40))

    def test_two_processes_share_one_database(
        self, bench: Bench, chain: ChainSpec, url: str, scope: str
    ) -> None:
        """Both deliver everything: one effect each."""
        start = processes().Process
        workers = [start(target=deliver_everything, args=(url, chain, scope, 60)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(2 * DEADLINE)
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert sorted(bench.effects()) == sorted((f"k{number}", 1) for number in range(60))


def deliver_everything(url: str, chain: ChainSpec, scope: str, count: int) -> None:
    """Deliver message 1 of `count` entities, in units of ten; runs in a separate process."""
    bench = Bench(url, chain, scope)
    _in_parts(bench, [message(f"k{number}", 1) for number in range(count)])
    bench.close()


def _in_parts(bench: Bench, messages: list[Any]) -> None:
    for start in range(0, len(messages), 10):
        bench.deliver_all(*messages[start : start + 10])
