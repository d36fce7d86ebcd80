"""Messages whose effects are outside the database are claimed and ended many at once; each effect keeps its promise."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import DUPLICATE, PROCEED, Verdict
from oncemq.errors import InfrastructureError
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.direct_unit import Gateway, adapter, both, gateway, order, plan_of
from support.engine import running

__all__ = ["adapter", "gateway"]

WAIT = 10.0


class Together(Strategy):
    """Claims and ends many messages at once; notes all in a log that handlers may use, too."""

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset({UnitKind.DIRECT}))
    ends_together = True

    def __init__(self) -> None:
        self.log: list[str] = []
        self.claims: list[list[str]] = []
        self.saves: list[list[str]] = []
        self.done: set[str] = set()
        self.reserving: Callable[[list[str]], None] = lambda _identities: None
        self.saving: Callable[[list[str]], None] = lambda _identities: None
        self.mutex = threading.Lock()

    def reserve(self, unit: Unit) -> None:
        """Claim one unit's."""
        self.reserve_all([unit])

    def reserve_all(self, units: Sequence[Unit]) -> None:
        """Claim all."""
        wanted = [each.envelope.identity for unit in units for each in unit.deliveries if each.envelope]
        self.reserving(wanted)
        with self.mutex:
            self.claims.append(wanted)
            self.log += [f"claim {identity}" for identity in wanted]

    def load_waits(self, run: Run) -> bool:
        """Return False."""
        return False

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Load nothing."""

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return whether its effect is recorded."""
        return DUPLICATE if item.envelope.identity in self.done else PROCEED

    def save(self, run: Run) -> None:
        """Save one."""
        self.save_all([run])

    def save_all(self, runs: Sequence[Run]) -> None:
        """Save all."""
        ended = [item.envelope.identity for run in runs for item in run.items]
        self.saving(ended)
        with self.mutex:
            self.saves.append(ended)
            self.log += [f"end {identity}" for identity in ended]
        self.done |= {item.envelope.identity for run in runs for item in run.items if item.verdict is PROCEED}


def noting(strategy: Together, kind: str, work: Callable[[dict[str, Any]], object]) -> Callable[..., Any]:
    """Return a handler that notes that it begins, before `work`."""

    def handle(order: dict) -> None:
        strategy.log.append(f"begin {order['id']}")
        work(order)

    async def handle_async(order: dict) -> None:
        strategy.log.append(f"begin {order['id']}")
        await asyncio.to_thread(work, order)

    return handle_async if kind == "async" else handle


def nothing(_order: dict[str, Any]) -> None:
    """Do nothing."""


@both
def test_every_effect_is_between_its_claim_and_its_end(kind: str, adapter: ScriptedAdapter) -> None:
    """Two hundred messages, in any order of others: claimed, begun, ended, and only then acknowledged."""
    strategy = Together()
    acknowledge = adapter.acknowledge

    def noticing(deliveries: Sequence[Any]) -> Any:
        strategy.log += [f"ack {each.envelope.identity}" for each in deliveries]
        return acknowledge(deliveries)

    vars(adapter)["acknowledge"] = noticing
    with running(plan_of(adapter, noting(strategy, kind, nothing), [strategy], workers=4)):
        for number in range(200):
            adapter.deliver(order(number, f"k{number % 50}"))
        adapter.wait_until(lambda a: len(a.acknowledged) == 200)
    places = {line: place for place, line in enumerate(strategy.log)}
    for number in range(200):
        steps = [places[f"{step} {number}"] for step in ("claim", "begin", "end", "ack")]
        assert steps == sorted(steps)
    assert len(strategy.saves) < 200


@both
def test_many_are_claimed_at_once(kind: str, adapter: ScriptedAdapter) -> None:
    """What has arrived while the first claim was written is claimed in one call."""
    strategy, first, go_on = Together(), threading.Event(), threading.Event()

    def wait_at_first(identities: list[str]) -> None:
        first.set()
        assert go_on.wait(WAIT)

    strategy.reserving = wait_at_first
    with running(
        plan_of(adapter, noting(strategy, kind, nothing), [strategy], workers=1 if kind == "sync" else 9)
    ):
        adapter.deliver(order(0))
        assert first.wait(WAIT)
        for number in range(1, 9):
            adapter.deliver(order(number))
        go_on.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 9)
    assert max(map(len, strategy.claims)) > 1
    assert sorted(name for names in strategy.claims for name in names) == [str(number) for number in range(9)]


def test_an_effect_is_recorded_while_its_neighbour_runs(adapter: ScriptedAdapter) -> None:
    """One worker has both in one unit, and the second one's handler lasts: the first one's end does not wait for it."""
    strategy, both_wait = Together(), threading.Event()
    strategy.reserving = lambda _identities: both_wait.wait(WAIT) and None
    saved = threading.Event()
    strategy.saving = lambda identities: saved.set() if identities == ["1"] else None

    def work(order: dict[str, Any]) -> None:
        if order["id"] == 2:
            assert saved.wait(WAIT)

    with running(plan_of(adapter, noting(strategy, "sync", work), [strategy], workers=1)):
        adapter.deliver(order(0))
        for number in range(1, 3):
            adapter.deliver(order(number))
        both_wait.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 3)
    assert not adapter.retried


@both
def test_a_copy_finds_what_its_original_left(kind: str, adapter: ScriptedAdapter) -> None:
    """Both in one unit: the end of the first is recorded before the second is decided."""
    strategy, all_wait = Together(), threading.Event()
    strategy.reserving = lambda _identities: all_wait.wait(WAIT) and None
    with running(plan_of(adapter, noting(strategy, kind, nothing), [strategy], workers=1)):
        adapter.deliver(order(0))
        for _ in range(3):
            adapter.deliver(order(1, "same"))
        all_wait.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 4)
    assert strategy.log.count("begin 1") == 1


@both
def test_a_failing_message_harms_no_neighbour(kind: str, adapter: ScriptedAdapter, gateway: Gateway) -> None:
    """Of thirty messages three fail or are refused: the others are done, and these are not."""
    strategy = Together()
    faults = {3: "raise", 11: "reject", 17: "later"}
    with running(plan_of(adapter, gateway.handler(kind), [strategy], workers=3)):
        for number in range(30):
            adapter.deliver(order(number, fault=faults.get(number)))
        adapter.wait_until(lambda a: len(a.acknowledged) == 27 and len(a.retried) == 2 and len(a.dead) == 1)
    assert strategy.done == {str(number) for number in range(30) if number not in faults}


@both
def test_an_end_that_cannot_be_recorded_harms_no_neighbour(kind: str, adapter: ScriptedAdapter) -> None:
    """One of twenty: the others are recorded meanwhile, and it is as soon as it can be; no handler runs twice."""
    strategy, mended = Together(), threading.Event()

    def refuse(identities: list[str]) -> None:
        if "7" in identities and not mended.is_set():
            raise ValueError("no")

    strategy.saving = refuse
    with running(plan_of(adapter, noting(strategy, kind, nothing), [strategy], workers=20)):
        for number in range(20):
            adapter.deliver(order(number))
        adapter.wait_until(lambda _: strategy.done == {str(number) for number in range(20) if number != 7})
        assert 7 not in {json.loads(each.message.body)["id"] for each in adapter.acknowledged}
        mended.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 20)
    assert strategy.log.count("begin 7") == 1
    assert not adapter.retried


@both
def test_a_claim_that_cannot_be_written_harms_no_neighbour(kind: str, adapter: ScriptedAdapter) -> None:
    """Claiming many fails: each is claimed by itself, and nothing runs without its claim."""
    strategy = Together()

    def refuse(identities: list[str]) -> None:
        if len(identities) > 1:
            raise InfrastructureError("a deadlock")

    strategy.reserving = refuse
    with running(plan_of(adapter, noting(strategy, kind, nothing), [strategy], workers=5)):
        for number in range(5):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 5)
    assert all(
        strategy.log.index(f"claim {number}") < strategy.log.index(f"begin {number}") for number in range(5)
    )


@both
def test_a_key_keeps_its_order(kind: str, adapter: ScriptedAdapter) -> None:
    """Its messages run one after the other, in the order of their arrival, over several units."""
    strategy, now = Together(), set[str]()
    clashes: list[str] = []

    def work(order: dict[str, Any]) -> None:
        if order["key"] in now:
            clashes.append(order["key"])
        now.add(order["key"])
        threading.Event().wait(0.001)
        now.discard(order["key"])

    with running(plan_of(adapter, noting(strategy, kind, work), [strategy], workers=8)):
        for number in range(60):
            adapter.deliver(order(number, "abc"[number % 3]))
        adapter.wait_until(lambda a: len(a.acknowledged) == 60)
    assert not clashes
    begun = [int(line.split()[1]) for line in strategy.log if line.startswith("begin")]
    for start in range(3):
        assert [number for number in begun if number % 3 == start] == list(range(start, 60, 3))
