"""Strategies around handlers whose effects are outside the database: order of hooks, failures, verdicts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import pytest

from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import DUPLICATE, PROCEED, Culprits, Verdict, defer, reject
from oncemq.errors import InfrastructureError
from oncemq.observe.state import PauseReason
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.direct_unit import EXTERNAL, Gateway, adapter, both, gateway, order, plan_of
from support.engine import make_app, make_consumer, running
from support.heard import Heard

__all__ = ["adapter", "gateway"]


class Direct(Strategy):
    """A strategy for direct units that notes what it is asked and fails where it is told."""

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset({UnitKind.DIRECT}))

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.errors: dict[str, list[Exception]] = {}
        self.verdict: Verdict = PROCEED

    def _note(self, hook: str) -> None:
        self.log.append(f"{self.name}.{hook}")
        if self.errors.get(hook):
            raise self.errors[hook].pop()

    def reserve(self, unit: Unit) -> None:
        """Note it."""
        self._note("reserve")

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Note it."""
        self._note("load")

    def decide(self, run: Run, item: Item) -> Verdict:
        """Note it and give the verdict."""
        self._note("decide")
        return self.verdict

    def record(self, run: Run, item: Item) -> None:
        """Note it."""
        self._note("record")

    def save(self, run: Run) -> None:
        """Note it."""
        self._note("save")

    def confirm(self, run: Run) -> None:
        """Note it."""
        self._note("confirm")

    def release(self, unit: Unit) -> None:
        """Note it."""
        self._note("release")


class Condemning(Direct):
    """Finds out in save that the message must not count."""

    def __init__(self) -> None:
        super().__init__("condemning", [])

    def save(self, run: Run) -> None:
        """Reject every item."""
        raise Culprits({item: reject("another one was faster") for item in run.items})


class Deferring(Direct):
    """Puts the first message that it sees off once."""

    def __init__(self) -> None:
        super().__init__("deferring", [])
        self.answers = [defer(timedelta(milliseconds=20))]

    def decide(self, run: Run, item: Item) -> Verdict:
        """Give the next answer."""
        return self.answers.pop() if self.answers else PROCEED


@both
def test_hooks_run_in_order_around_the_handler(kind: str, adapter: ScriptedAdapter, gateway: Gateway) -> None:
    """Chain order, and release in reverse."""
    log: list[str] = []
    with running(plan_of(adapter, gateway.handler(kind), [Direct("a", log), Direct("b", log)], workers=1)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    steps = ("reserve", "load", "decide", "record", "save", "confirm")
    assert log == [*(f"{name}.{step}" for step in steps for name in "ab"), "b.release", "a.release"]


@both
def test_what_was_reserved_is_released_when_a_later_reserve_fails(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """The second strategy cannot reserve: the first one's lock must not stay behind."""
    log: list[str] = []
    first, second = Direct("a", log), Direct("b", log)
    second.errors["reserve"] = [InfrastructureError("Redis is away")]
    with running(plan_of(adapter, gateway.handler(kind), [first, second], workers=1)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert log[:4] == ["a.reserve", "b.reserve", "b.release", "a.release"]
    assert gateway.done == [1]


@both
@pytest.mark.parametrize("hook", ["reserve", "load", "decide", "record", "save", "confirm"])
def test_a_strategys_bug_pauses_and_charges_no_message(
    kind: str, hook: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """A hook that fails pauses the consumer, says so, and costs its message no attempt."""
    heard, strategy = Heard(), Direct("a", [])
    strategy.errors[hook] = [KeyError("oops")]
    with running(plan_of(adapter, gateway.handler(kind), [strategy]), observers=[heard]):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
        heard.wait_for("consumer_resumed")
    assert heard.of("consumer_paused")[0].arguments[1] is PauseReason.STRATEGY_BUG
    assert not adapter.retried
    assert not adapter.dead
    assert gateway.done == [1]


@both
@pytest.mark.parametrize("hook", ["record", "save", "confirm"])
@pytest.mark.parametrize("fault", [None, "raise", "reject"])
def test_a_handler_that_ran_does_not_run_again_because_of_what_follows(
    kind: str, hook: str, fault: str | None, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """The database fails four times after the handler: only the failing step is done again, then the message settled."""
    heard, log = Heard(), list[str]()
    first, second = Direct("a", log), Direct("b", log)
    second.errors[hook] = [InfrastructureError("the database is away") for _ in range(4)]
    with running(plan_of(adapter, gateway.handler(kind), [first, second]), observers=[heard]):
        adapter.deliver(order(1, fault=fault))
        adapter.wait_until(lambda a: len(a.acknowledged) + len(a.dead) + len(a.retried) == 1)
    assert gateway.done == [1]
    hooks = ("save", "confirm") if fault else ("record", "save", "confirm")
    wanted = {f"{name}.{hook}": 1 for hook in hooks for name in "ab"}
    if hook in hooks:
        wanted[f"b.{hook}"] = 5
        assert heard.of("infrastructure_failed")
        assert heard.of("consumer_paused")[0].arguments[1] is PauseReason.DATABASE
    assert {step: log.count(step) for step in wanted} == wanted
    assert log.count("a.reserve") == 1


@both
def test_a_verdict_of_save_stands_for_a_handler_that_ran(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """A strategy may still refuse the message by Culprits; that is no failure to be tried again."""
    strategy = Condemning()
    with running(plan_of(adapter, gateway.handler(kind), [strategy])):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.dead) == 1)
    assert gateway.done == [1]


@both
def test_a_process_that_leaves_gives_back_what_it_could_not_save(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """When the database stays away beyond the grace, the message is not acknowledged; its handler ran once."""
    heard, strategy = Heard(), Direct("a", [])
    strategy.errors["save"] = [InfrastructureError("the database is away") for _ in range(1000)]
    consumer = make_consumer(gateway.handler(kind), [strategy], effects=EXTERNAL)
    with running(make_app(adapter, None, consumer, grace=timedelta(milliseconds=300)), observers=[heard]):
        adapter.deliver(order(1))
        heard.wait_for("consumer_paused")
    assert gateway.done == [1]
    assert not adapter.acknowledged


@both
def test_a_duplicate_is_acknowledged_without_its_handler(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """The strategy decides, the handler is not called."""
    strategy = Direct("a", [])
    strategy.verdict = DUPLICATE
    with running(plan_of(adapter, gateway.handler(kind), [strategy])):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert not gateway.done


@both
def test_a_deferred_message_is_tried_again_at_no_cost(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """Defer keeps the message in this process; later ones of its key wait behind it."""
    strategy = Deferring()
    with running(plan_of(adapter, gateway.handler(kind), [strategy])):
        adapter.deliver(order(1, "same"))
        adapter.deliver(order(2, "same"))
        adapter.wait_until(lambda a: len(a.acknowledged) == 2)
    assert gateway.done == [1, 2]
    assert not adapter.retried
