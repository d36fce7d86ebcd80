"""Outcomes of direct units are saved together, by one thread: what it does with many, with failures and at the end."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import OperationalError

from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Culprits
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.workers.direct_unit import Finisher
from oncemq.engine.workers.outcome_writer import Ended, OutcomeWriter
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from support.benches.two_phase import envelope

WAIT = 10.0


class Saves:
    """A strategy's `save_all`, which fails for some messages as long as they are named here."""

    ends_together = True

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.failing: dict[str, BaseException] = {}
        self.left = threading.Semaphore(1000)

    def save_all(self, runs: Sequence[Run]) -> None:
        """Note which, and fail."""
        names = [run.items[0].envelope.identity for run in runs]
        self.calls.append(names)
        assert self.left.acquire(timeout=WAIT)
        for name in names:
            if name in self.failing:
                raise self.failing[name]


class Bench:
    """A writer around `Saves`, and what it told."""

    def __init__(self) -> None:
        self.saves = Saves()
        chain = Chain([])
        chain.saves_of_all = [self.saves.save_all]
        self.leaving = threading.Event()
        self.told: list[list[str]] = []
        self.troubles: list[Exception] = []
        self.changed = threading.Condition()
        finisher = Finisher(
            chain, lambda _what, _error: None, lambda *_: None, self.leaving.is_set, self.leaving.wait
        )
        self.writer = OutcomeWriter(
            finisher.save_all, self._troubled, self.leaving.is_set, self.leaving.wait, lambda: 0.0
        )

    def _troubled(self, _tries: int, _pause: float, trouble: Exception) -> None:
        with self.changed:
            self.troubles.append(trouble)
            self.changed.notify_all()

    def _saved(self, ended: list[Ended]) -> None:
        with self.changed:
            self.told.append([each.item.envelope.identity for each in ended])
            self.changed.notify_all()

    def add(self, *names: str) -> list[Ended]:
        """Let the outcomes of these messages be saved."""
        made = []
        for name in names:
            message = envelope(name)
            item = Item(Delivery(message), message, {})
            item.verdict = PROCEED
            made.append(Ended(Run(Unit("shop.points", [], 0.0), [item]), item, self._saved))
            self.writer.add(made[-1])
        return made

    def wait(self, reached: Callable[[], bool]) -> None:
        """Wait until it is so."""
        with self.changed:
            assert self.changed.wait_for(reached, WAIT)

    def names(self) -> list[str]:
        """Return what was told to be saved, or never to be, in order."""
        return [name for names in self.told for name in names]


@contextmanager
def looping(bench: Bench) -> Iterator[list[BaseException]]:
    """Run the writer's loop until the block ends."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            bench.writer.loop()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield errors
    finally:
        bench.leaving.set()
        bench.writer.close()
        thread.join(WAIT)
        assert not thread.is_alive()


@pytest.fixture
def bench() -> Bench:
    """Lend one."""
    return Bench()


def test_what_ends_while_some_are_saved_is_saved_together(bench: Bench) -> None:
    """The first goes alone, at once; the next ones share a call."""
    bench.saves.left = threading.Semaphore(0)
    with looping(bench):
        bench.add("a")
        while not bench.saves.calls:
            threading.Event().wait(0.001)
        bench.add("b", "c", "d")
        bench.saves.left.release(2)
        bench.wait(lambda: len(bench.names()) == 4)
    assert bench.saves.calls == [["a"], ["b", "c", "d"]]


def test_one_that_cannot_be_saved_harms_no_neighbour(bench: Bench) -> None:
    """The seven others are saved in parts; it is tried again until it can be."""
    bench.saves.failing["c"] = KeyError("oops")
    bench.add(*"abcdefgh")
    with looping(bench):
        bench.wait(lambda: len(bench.names()) == 7 and len(bench.troubles) == 1)
        assert sorted(bench.names()) == list("abdefgh")
        bench.saves.failing.clear()
        bench.leaving.set()  # it is tried once more, without a pause
        bench.wait(lambda: len(bench.names()) == 8)
    assert bench.saves.calls[-1] == ["c"]
    assert isinstance(bench.troubles[0], StrategyBug)


def test_an_outcome_that_was_saved_late_has_no_trouble(bench: Bench) -> None:
    """What failed before counts no more."""
    bench.saves.failing["a"] = KeyError("oops")
    (ended,) = bench.add("a")
    with looping(bench):
        bench.wait(lambda: len(bench.troubles) == 1)
        bench.saves.failing.clear()
        bench.leaving.set()
        bench.wait(lambda: len(bench.names()) == 1)
    assert ended.trouble is None


def test_a_process_that_ends_gives_up(bench: Bench) -> None:
    """What cannot be saved then has its trouble, so that its message is not acknowledged."""
    bench.saves.failing["a"] = InfrastructureError("away")
    (ended,) = bench.add("a")
    with looping(bench):
        bench.wait(lambda: len(bench.troubles) == 1)
        bench.leaving.set()
        bench.wait(lambda: len(bench.names()) == 1)
    assert isinstance(ended.trouble, InfrastructureError)


def test_where_the_database_is_away_parts_are_not_tried(bench: Bench) -> None:
    """Each try might wait for a connection."""
    bench.saves.failing["a"] = InfrastructureError("away")
    bench.saves.failing["a"].__cause__ = OperationalError(
        "connect", None, Exception(), connection_invalidated=True
    )
    bench.add(*"abcdefgh")
    with looping(bench):
        bench.wait(lambda: len(bench.troubles) == 1)
        assert bench.saves.calls == [list("abcdefgh")]
        assert bench.names() == []


def test_culprits_are_a_bug_here(bench: Bench) -> None:
    """The handler has run, and others share the call."""
    bench.saves.failing["a"] = Culprits({})
    (ended,) = bench.add("a")
    with looping(bench) as errors:
        bench.wait(lambda: len(bench.troubles) == 1)
    assert isinstance(ended.trouble, StrategyBug)
    assert not errors


def test_a_thread_that_ends_by_an_error_leaves_no_one_waiting(bench: Bench) -> None:
    """All that wait are told, and nothing more is taken."""
    bench.saves.failing["a"] = SystemExit(3)
    ended = bench.add("a", "b")
    with looping(bench) as errors:
        bench.wait(lambda: len(bench.names()) == 2)
    assert all(isinstance(each.trouble, StrategyBug) for each in ended)
    assert isinstance(errors[0], SystemExit)
    with pytest.raises(StrategyBug, match="thread has ended"):
        bench.add("c")


def test_what_ends_too_late_is_not_waited_for(bench: Bench) -> None:
    """The process ends, and its worker must not wait for ever."""
    with looping(bench):
        bench.add("a")
    assert bench.names() == ["a"]
    with pytest.raises(StrategyBug, match="thread has ended"):
        bench.add("b")
