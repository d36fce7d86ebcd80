"""Jobs of several threads done in one go: no one waits without need, and no one pays for another."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from oncemq_strategies.common.coalescing import Together
from support.brokers.embedded_broker import eventually

PATIENCE = 20.0


class Doer:
    """Doubles numbers; the first time it waits until it may. Refuses what is below zero."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = []
        self.started, self.may_go = threading.Event(), threading.Event()

    def __call__(self, jobs: Sequence[int]) -> list[int]:
        """Note the jobs, and return their doubles."""
        self.turns.append(list(jobs))
        if len(self.turns) == 1:
            self.started.set()
            assert self.may_go.wait(PATIENCE)
        if min(jobs) < 0:
            raise ValueError(f"{min(jobs)} is below zero")
        return [2 * job for job in jobs]


@pytest.fixture
def doer() -> Doer:
    """Return what does the jobs."""
    return Doer()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Lend threads enough."""
    with ThreadPoolExecutor(200) as threads:
        yield threads


def behind_the_first(
    doer: Doer, pool: ThreadPoolExecutor, jobs: Sequence[int], first: int = 0
) -> tuple[Future[int], list[Future[int]]]:
    """Ask for `jobs` while the first one is being done, and then let that end."""
    together = Together(doer)
    ahead = pool.submit(together.ask, first)
    assert doer.started.wait(PATIENCE)
    later = []
    for number, job in enumerate(jobs, 1):
        later.append(pool.submit(together.ask, job))
        _until_waiting(together, number)
    doer.may_go.set()
    return ahead, later


def _until_waiting(together: Together[int, int], count: int) -> None:
    # In the order in which they were asked, so that each go is known.
    eventually(lambda: len(together._waiting) == count, f"{count} wait")


def test_a_job_alone_is_done_at_once(doer: Doer) -> None:
    """No one waits in order to be more."""
    doer.may_go.set()
    together = Together(doer)
    assert [together.ask(1), together.ask(2)] == [2, 4]
    assert doer.turns == [[1], [2]]


def test_those_who_come_meanwhile_are_done_in_one_go(doer: Doer, pool: ThreadPoolExecutor) -> None:
    """Each has its own answer."""
    ahead, later = behind_the_first(doer, pool, [1, 2, 3])
    assert [future.result(PATIENCE) for future in (ahead, *later)] == [0, 2, 4, 6]
    assert doer.turns == [[0], [1, 2, 3]]


def test_a_go_has_an_end(doer: Doer, pool: ThreadPoolExecutor) -> None:
    """A crowd is done in parts, so that the first need not wait for the last."""
    _, later = behind_the_first(doer, pool, range(1, 151))
    assert [future.result(PATIENCE) for future in later] == list(range(2, 301, 2))
    assert [len(turn) for turn in doer.turns] == [1, 100, 50]


def test_who_is_at_fault_fails_alone(doer: Doer, pool: ThreadPoolExecutor) -> None:
    """The others of the same go get their answers, and what comes later is done as ever."""
    _, later = behind_the_first(doer, pool, [1, -1, 3])
    with pytest.raises(ValueError, match="-1 is below zero"):
        later[1].result(PATIENCE)
    assert [later[0].result(PATIENCE), later[2].result(PATIENCE)] == [2, 6]
    assert sorted(doer.turns[2:]) == [[-1], [1], [3]]


def test_the_first_may_fail_while_others_wait(doer: Doer, pool: ThreadPoolExecutor) -> None:
    """Anyone who waits behind a failure is not forgotten."""
    ahead, later = behind_the_first(doer, pool, [1, 2], first=-5)
    with pytest.raises(ValueError, match="-5 is below zero"):
        ahead.result(PATIENCE)
    assert [future.result(PATIENCE) for future in later] == [2, 4]


def test_an_interrupt_of_one_is_not_the_others(pool: ThreadPoolExecutor) -> None:
    """Anyone who does the jobs of all may be cut off; the others then do theirs by themselves."""
    started, may_go, turns = threading.Event(), threading.Event(), list[list[int]]()

    def do(jobs: Sequence[int]) -> list[int]:
        turns.append(list(jobs))
        if len(turns) == 1:
            started.set()
            assert may_go.wait(PATIENCE)
        if len(jobs) > 1:
            raise KeyboardInterrupt
        return list(jobs)

    together = Together(do)
    futures = [pool.submit(together.ask, 0)]
    assert started.wait(PATIENCE)
    for job in (1, 2, 3):
        futures.append(pool.submit(together.ask, job))
        _until_waiting(together, job)
    may_go.set()
    ends = [type(future.exception(PATIENCE)) for future in futures]
    assert sorted(ends, key=str) == [KeyboardInterrupt, type(None), type(None), type(None)]
