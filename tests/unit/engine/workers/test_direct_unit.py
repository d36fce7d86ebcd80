"""Tests of direct units, sync and async: every message on its own, through a whole app without any database."""

import asyncio
import json
import threading
from datetime import timedelta

import pytest

from oncemq.engine.workers.async_worker import AsyncWorker
from oncemq.message import headers
from oncemq.observe.events import TimeLimit
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.direct_unit import Gateway, adapter, both, gateway, order, plan_of
from support.engine import running
from support.heard import Heard

__all__ = ["adapter", "gateway"]


WAIT = 10.0


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
