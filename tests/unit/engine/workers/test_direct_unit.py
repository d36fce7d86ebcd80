"""Tests of direct units, sync and async: every message on its own, through a whole app without any database."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from oncemq.contracts.checks import Effects, UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import DUPLICATE, PROCEED, Culprits, Verdict, defer, reject
from oncemq.engine.workers.async_worker import AsyncWorker
from oncemq.errors import InfrastructureError, Reject, Retry
from oncemq.message import headers
from oncemq.observe.events import TimeLimit
from oncemq.observe.state import PauseReason
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running
from support.heard import Heard

WAIT = 10.0
EXTERNAL = Effects.EXTERNAL


def order(number: int, key: str | None = None, **fields: Any) -> bytes:
    """Return a message's body; each order is a key of its own unless told otherwise."""
    return json.dumps({"id": number, "key": key or f"k{number}", **fields}).encode()


def plan_of(
    adapter: ScriptedAdapter, handler: Callable[..., Any], strategies: Sequence[Strategy] = (), **fields: Any
) -> Any:
    """Return an app without database and with one consumer."""
    return make_app(adapter, None, make_consumer(handler, strategies, effects=EXTERNAL, **fields))


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """The broker."""
    return ScriptedAdapter()


class Gateway:
    """What a handler does outside: counted, sync or async, and failing where a message says so."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def send(self, order: dict) -> None:
        """Handle one message."""
        self.done.append(order["id"])
        if order.get("fault") == "raise":
            raise ValueError("bad")
        if order.get("fault") == "exit":
            raise SystemExit(3)
        if order.get("fault") == "reject":
            raise Reject("no")
        if order.get("fault") == "later":
            raise Retry("busy", after=timedelta(minutes=7))

    async def send_async(self, order: dict) -> None:
        """Handle one message."""
        await asyncio.sleep(0)
        self.send(order)

    def handler(self, kind: str) -> Callable[..., Any]:
        """Return the sync or the async one."""
        return self.send_async if kind == "async" else self.send


@pytest.fixture
def gateway() -> Gateway:
    """The world outside."""
    return Gateway()


both = pytest.mark.parametrize("kind", ["sync", "async"])


@both
def test_a_failing_neighbour_changes_nothing(kind: str, adapter: ScriptedAdapter, gateway: Gateway) -> None:
    """Of ten messages three end otherwise; every one of them was handled exactly once."""
    faults = {2: "raise", 5: "reject", 8: "later"}
    with running(plan_of(adapter, gateway.handler(kind))):
        for number in range(10):
            adapter.deliver(order(number, fault=faults.get(number)))
        adapter.wait_until(lambda a: len(a.acknowledged) == 7 and len(a.retried) == 2 and len(a.dead) == 1)
    assert sorted(gateway.done) == list(range(10))
    assert sorted(later.delay for later in adapter.retried)[1] == timedelta(minutes=7)


@both
def test_a_handler_that_exits_is_only_a_failure(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """sys.exit() in a handler ends no worker."""
    with running(plan_of(adapter, gateway.handler(kind))):
        adapter.deliver(order(1, fault="exit"))
        adapter.deliver(order(2))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1 and len(a.retried) == 1)
    assert adapter.retried[0].headers[headers.ERROR_CLASS] == "SystemExit"


@both
def test_a_refused_message_is_buried_with_its_bytes(
    kind: str, adapter: ScriptedAdapter, gateway: Gateway
) -> None:
    """What cannot be understood never reaches the handler, and is kept as it came."""
    with running(plan_of(adapter, gateway.handler(kind))):
        adapter.deliver(b"{nonsense")
        adapter.deliver(b'{"id": 1}')
        adapter.deliver(order(2))
        adapter.wait_until(lambda a: len(a.dead) == 2 and len(a.acknowledged) == 1)
    buried = {dead.delivery.message.body: dead.headers[headers.REASON] for dead in adapter.dead}
    assert buried == {b"{nonsense": "undecodable", b'{"id": 1}': "no-key"}
    assert gateway.done == [2]


@both
def test_a_key_runs_in_order_one_after_the_other(kind: str, adapter: ScriptedAdapter) -> None:
    """Thirty messages of three keys with thirty workers: never two of a key at once, and in arrival order."""
    running_now: set[str] = set()
    seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    clashes: list[str] = []

    def begin(order: dict) -> None:
        if order["key"] in running_now:
            clashes.append(order["key"])
        running_now.add(order["key"])
        seen[order["key"]].append(order["id"])

    def handle(order: dict) -> None:
        begin(order)
        threading.Event().wait(0.002)
        running_now.discard(order["key"])

    async def handle_async(order: dict) -> None:
        begin(order)
        await asyncio.sleep(0.002)
        running_now.discard(order["key"])

    with running(plan_of(adapter, handle_async if kind == "async" else handle, workers=30)):
        for number in range(60):
            adapter.deliver(order(number, "abc"[number % 3]))
        adapter.wait_until(lambda a: len(a.acknowledged) == 60)
    assert not clashes
    assert seen == {key: list(range(start, 60, 3)) for start, key in enumerate("abc")}


def test_async_handlers_run_at_once(adapter: ScriptedAdapter) -> None:
    """Thirty-two messages meet in a barrier that opens for all of them only."""
    barrier = asyncio.Barrier(32)

    async def meet(order: dict) -> None:
        await asyncio.wait_for(barrier.wait(), WAIT)

    with running(plan_of(adapter, meet, workers=32)):
        for number in range(32):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 32)


def test_sync_handlers_run_at_once(adapter: ScriptedAdapter) -> None:
    """Eight workers' handlers meet in a barrier; messages that wait are spread over the workers."""
    barrier = threading.Barrier(8)
    with running(plan_of(adapter, lambda order: barrier.wait(WAIT) and None, workers=8)):
        for number in range(8):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 8)


def test_no_more_async_handlers_run_than_there_are_workers(adapter: ScriptedAdapter) -> None:
    """With three workers ten messages are never four at once."""
    now, most = 0, 0

    async def handle(order: dict) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    with running(plan_of(adapter, handle, workers=3)):
        for number in range(10):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 10)
    assert most == 3


def test_a_keys_first_message_is_settled_while_its_second_runs(adapter: ScriptedAdapter) -> None:
    """Messages that were taken together do not wait for each other's settlement."""
    both_wait, go_on = threading.Event(), threading.Event()

    async def handle(order: dict) -> None:
        if order["id"] == 0:
            await asyncio.to_thread(both_wait.wait, WAIT)
        if order["id"] == 2:
            await asyncio.to_thread(go_on.wait, WAIT)

    with running(plan_of(adapter, handle, workers=2)):
        adapter.deliver(order(0, "same"))
        adapter.deliver(order(1, "same"))
        adapter.deliver(order(2, "same"))
        both_wait.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 2)
        go_on.set()
        adapter.wait_until(lambda a: len(a.acknowledged) == 3)


def test_a_key_is_not_given_up_before_its_last_message(adapter: ScriptedAdapter) -> None:
    """Settling the first of two messages that were taken together lets no third one run beside the second."""
    blocked, go_on, third = threading.Event(), threading.Event(), threading.Event()
    together = threading.Event()

    async def handle(order: dict) -> None:
        if order["id"] == 0:
            await asyncio.to_thread(together.wait, WAIT)
        if order["id"] == 2:
            blocked.set()
            await asyncio.to_thread(go_on.wait, WAIT)
        if order["id"] == 3:
            third.set()

    with running(plan_of(adapter, handle, workers=3)):
        adapter.deliver(order(0, "same"))
        adapter.deliver(order(1, "same"))
        adapter.deliver(order(2, "same"))
        together.set()
        assert blocked.wait(WAIT)
        adapter.deliver(order(4, "other"))
        adapter.deliver(order(3, "same"))
        adapter.wait_until(lambda a: len(a.acknowledged) == 3)
        assert not third.wait(0.5)
        go_on.set()
        assert third.wait(WAIT)
        adapter.wait_until(lambda a: len(a.acknowledged) == 5)


def test_a_soft_limit_cancels_an_async_handler(adapter: ScriptedAdapter) -> None:
    """The handler is cancelled where it awaits, its message costs an attempt, and its neighbours go on."""
    heard, cancelled = Heard(), threading.Event()

    async def handle(order: dict) -> None:
        if order["id"] == 1:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    consumer = plan_of(adapter, handle, workers=2, soft_limit=timedelta(milliseconds=100))
    with running(consumer, observers=[heard]):
        adapter.deliver(order(1))
        adapter.deliver(order(2))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1 and len(a.retried) == 1)
    assert cancelled.is_set()
    assert adapter.retried[0].headers[headers.ERROR_CLASS] == "TimeLimitExceeded"
    assert heard.of("time_limit")[0].arguments[2] is TimeLimit.SOFT


def test_a_handlers_own_time_out_is_its_own_error(adapter: ScriptedAdapter) -> None:
    """A TimeoutError of the handler's own is not mistaken for our limit."""

    async def handle(order: dict) -> None:
        raise TimeoutError("the mail server is slow")

    with running(plan_of(adapter, handle, soft_limit=timedelta(minutes=1))):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.retried) == 1)
    assert adapter.retried[0].headers[headers.ERROR_TEXT] == "TimeoutError: the mail server is slow"


def test_a_finished_effect_is_not_repeated_because_it_was_slow(adapter: ScriptedAdapter) -> None:
    """A sync handler that returns after its soft limit has done its work: acknowledged, and told."""
    heard = Heard()

    def handle(order: dict) -> None:
        heard.wait_for("time_limit")

    with running(plan_of(adapter, handle, soft_limit=timedelta(milliseconds=50)), observers=[heard]):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)


@both
def test_a_drain_waits_for_what_is_in_flight(kind: str, adapter: ScriptedAdapter) -> None:
    """What runs when the app is stopped is finished and settled; what never started goes back."""
    began, go_on = threading.Event(), threading.Event()

    def handle(order: dict) -> None:
        began.set()
        go_on.wait(WAIT)

    async def handle_async(order: dict) -> None:
        began.set()
        await asyncio.to_thread(go_on.wait, WAIT)

    with running(plan_of(adapter, handle_async if kind == "async" else handle, workers=1)) as app:
        adapter.deliver(order(1))
        assert began.wait(WAIT)
        adapter.deliver(order(2))
        app.stop()
        adapter.wait_until(lambda a: "points" in a.paused)
        assert not adapter.acknowledged
        go_on.set()
    assert [json.loads(delivery.message.body)["id"] for delivery in adapter.acknowledged] == [1]
    assert [json.loads(delivery.message.body)["id"] for delivery in adapter.given_back] == [2]


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


def test_a_worker_that_breaks_ends_the_app_instead_of_blocking(
    adapter: ScriptedAdapter, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An async worker with a bug in its own settling ends and says so; a supervisor would start it again."""
    heard = Heard()

    def settle(_worker: AsyncWorker, _finished: object) -> None:
        raise RuntimeError("a bug in the engine")

    monkeypatch.setattr(AsyncWorker, "_settle", settle)
    with running(plan_of(adapter, gateway.send_async), observers=[heard]):
        adapter.deliver(order(1))
        assert heard.wait_for("stopped")[0].fields == {"clean": False}
    assert any("bug in the engine" in str(told.arguments[1]) for told in heard.of("failed"))
