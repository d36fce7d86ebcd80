"""What was tried and failed ends applied or as a dead letter; what came too early costs nothing and holds nothing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, func, select

from oncemq.contracts.adapter import RetryRequest
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, before_a_try, retry
from oncemq.engine.base.overtaken import tries_of, was_tried
from oncemq.ledger.messages import parking
from oncemq.ledger.records import sequences
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message
from oncemq.message.headers import attempt_of, time_of
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.sequence.strategy import SequenceStrategy
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.program import eventually
from support.database.databases import database, engine
from support.engine import make_app, make_consumer, running
from support.units import build
from unit.engine.parking.test_parking import SOON, Seen

__all__ = ["database", "engine"]

LINE = {"to": "body.to", "states": ["purchased", "approved", "shipped", "delivered"]}
Chain = list[Strategy]


@pytest.fixture
def seen() -> Seen:
    """Return a fresh record."""
    return Seen()


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """Return a broker that does what the test says."""
    return ScriptedAdapter()


@pytest.fixture
def name(fresh: str) -> str:
    """Return a consumer's name of the test's own."""
    return fresh


@pytest.fixture
def lifecycle(engine: Engine, name: str) -> Chain:
    """Return the chain of the example `order-lifecycle`."""
    return [build(UniqueKey, engine, name), build(StateMachine, engine, name, LINE)]


def event(to: str, **more: Any) -> bytes:
    """Return the message that asks for a state."""
    return json.dumps({"id": to, "key": "a", "to": to, **more}).encode()


def again(adapter: ScriptedAdapter, later: RetryRequest) -> None:
    """Deliver what was retried, as a broker does."""
    message = later.delivery.message
    headers: Mapping[str, str] = {**message.headers, **later.headers}
    adapter.deliver(
        message.body,
        headers=headers,
        attempt=attempt_of(headers),
        first_failed_at=time_of(headers, names.FIRST_FAILED_AT),
    )


def parked(engine: Engine, name: str) -> int:
    """Return how many messages of a consumer are parked."""
    ours = parking.TABLE.c.consumer == f"shop.{name}"
    with engine.connect() as connection:
        return int(
            connection.execute(select(func.count()).select_from(parking.TABLE).where(ours)).scalar_one()
        )


def test_a_failure_holds_the_states_behind_it(
    engine: Engine, adapter: ScriptedAdapter, lifecycle: Chain, seen: Seen, name: str
) -> None:
    """A state whose handler failed once is reached before those that came after it."""
    seen.fails["approved"] = [ValueError("no")]
    plan = make_consumer(seen.handle, lifecycle, name=name, retry=SOON, hold_key=True)
    with running(make_app(adapter, engine, plan)):
        for state in LINE["states"]:
            adapter.deliver(event(state))
        seen.wait_for(*LINE["states"])
        eventually(lambda: parked(engine, name) == 0, "nothing parked", 10)
    assert (adapter.retried, adapter.dead, adapter.buried) == ([], [], [])


@pytest.mark.parametrize("copies", [False, True], ids=["overtaken", "its-copy-was-applied"])
def test_what_is_overtaken_in_its_pause_is_a_dead_letter(
    engine: Engine, adapter: ScriptedAdapter, lifecycle: Chain, seen: Seen, name: str, copies: bool
) -> None:
    """Its reason, its own error and its attempts are told, unless a copy of it was applied meanwhile."""
    seen.fails["approved"] = [KeyError("stock")]
    plan = make_consumer(seen.handle, lifecycle, name=name, retry=SOON)
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(event("approved"))
        adapter.wait_until(lambda broker: len(broker.retried) == 1)
        if copies:
            adapter.deliver(event("approved"))
        adapter.deliver(event("shipped"))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 1 + copies)
        again(adapter, adapter.retried[0])
        adapter.wait_until(lambda broker: len(broker.acknowledged) + len(broker.dead) == 2 + copies)
    if copies:
        assert adapter.dead == []
        return
    (dead,) = adapter.dead
    assert (dead.headers[names.REASON], dead.headers[names.ERROR_CLASS]) == ("overtaken", "KeyError")
    assert "approved came late" in dead.headers[names.ERROR_TEXT]
    assert "stock" in dead.headers[names.ERROR_TEXT]


def test_a_copy_that_only_was_redelivered_is_still_late(
    engine: Engine, adapter: ScriptedAdapter, lifecycle: Chain, seen: Seen, name: str
) -> None:
    """The network's disorder is no failure."""
    plan = make_consumer(seen.handle, lifecycle, name=name, retry=SOON)
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(event("shipped"))
        adapter.deliver(event("approved"), redelivered=True)
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 2)
    assert (seen.done, adapter.dead) == (["shipped"], [])


def test_a_late_copy_does_not_hide_a_failure(
    engine: Engine, adapter: ScriptedAdapter, lifecycle: Chain, seen: Seen, name: str
) -> None:
    """A copy that came too late and was never tried is stale; the one that failed is a dead letter all the same."""
    seen.fails["approved"] = [KeyError("stock")]
    plan = make_consumer(seen.handle, lifecycle, name=name, retry=SOON)
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(event("approved"))
        adapter.wait_until(lambda broker: len(broker.retried) == 1)
        adapter.deliver(event("shipped"))
        adapter.deliver(event("approved"))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 2)
        again(adapter, adapter.retried[0])
        adapter.wait_until(lambda broker: len(broker.acknowledged) + len(broker.dead) == 3)
    assert [letter.headers[names.REASON] for letter in adapter.dead] == ["overtaken"]


@pytest.mark.parametrize("where", ["broker", "ledger"])
def test_what_comes_early_does_not_hold_its_key(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, where: str
) -> None:
    """With `early: retry` its predecessor is let by, and no attempt is counted, wherever it waits."""
    seen.fails["purchased"] = [ValueError("no")] if where == "ledger" else []
    chain: Chain = [build(StateMachine, engine, name, {**LINE, "early": "retry"})]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True)
    with running(make_app(adapter, engine, plan)):
        for state in ("purchased", "shipped"):
            adapter.deliver(event(state))
        seen.wait_for("purchased")
        if where == "broker":
            adapter.wait_until(lambda broker: len(broker.retried) == 1)
            assert attempt_of(adapter.retried[0].headers) == 1
        adapter.deliver(event("approved"))
        if where == "broker":
            seen.wait_for("purchased", "approved")
            again(adapter, adapter.retried[0])
        seen.wait_for("purchased", "approved", "shipped")
        eventually(lambda: parked(engine, name) == 0, "nothing parked", 10)
    assert (adapter.dead, adapter.buried) == ([], [])


def test_what_a_strategy_asks_to_retry_does_not_hold_its_key(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str
) -> None:
    """Its handler has not run: what makes it fit may be behind it."""

    class Fits(Strategy):
        """Runs a message only when its predecessor has."""

        traits: ClassVar[Traits] = Traits(decides=True)

        def decide(self, run: Run, item: Item) -> Verdict:
            """Look what has run."""
            return PROCEED if len(seen.done) + 1 == item.payload["n"] else retry("not yet")

    plan = make_consumer(seen.handle, [Fits()], name=name, retry=SOON, hold_key=True)
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(event("2", n=2))
        adapter.wait_until(lambda broker: len(broker.retried) == 1)
        adapter.deliver(event("1", n=1))
        seen.wait_for("1")
        again(adapter, adapter.retried[0])
        seen.wait_for("1", "2")


def test_more_than_may_be_parked_costs_no_attempt(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str
) -> None:
    """The broker keeps what finds no room, as often as it takes; what fills the gap runs at once."""
    chain: Chain = [build(SequenceStrategy, engine, name, {"order": "body.n", "park_limit": 1})]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True)
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(event("3", n=3))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 1)
        adapter.deliver(event("2", n=2))
        for turn in range(1, SOON.attempts + 2):
            adapter.wait_until(lambda broker, turn=turn: len(broker.retried) == turn)  # type: ignore[misc]
            again(adapter, adapter.retried[-1])
        adapter.wait_until(lambda broker: len(broker.retried) == SOON.attempts + 2)
        adapter.deliver(event("1", n=1))
        seen.wait_for("1")
        again(adapter, adapter.retried[-1])
        seen.wait_for("1", "2", "3")
    assert {attempt_of(request.headers) for request in adapter.retried} == {1}
    assert adapter.dead == []


@pytest.mark.parametrize("turned", [False, True], ids=["sequence-last", "sequence-first"])
@pytest.mark.parametrize("neighbour", ["unique_key", "state_machine"])
def test_a_number_that_a_neighbour_settles_is_used_up(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, neighbour: str, turned: bool
) -> None:
    """The sequence goes on behind a duplicate or a stale message, also behind one that came early."""
    other: Callable[[], Strategy] = {
        "unique_key": lambda: build(UniqueKey, engine, name),
        "state_machine": lambda: build(StateMachine, engine, name, LINE),
    }[neighbour]
    chain: Chain = [other(), build(SequenceStrategy, engine, name, {"order": "body.n"})]
    plan = make_consumer(seen.handle, chain[::-1] if turned else chain, name=name, retry=SOON)
    with running(make_app(adapter, engine, plan)):
        for number, state in ((1, "approved"), (3, "approved"), (2, "approved"), (4, "shipped")):
            adapter.deliver(event(state, n=number))
        seen.wait_for("approved", "shipped")
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
        eventually(lambda: parked(engine, name) == 0, "nothing parked", 10)
    with engine.connect() as connection:
        assert sequences.last_of(connection, f"shop.{name}", "a") == 4


def test_nothing_waits_behind_a_key_without_end(
    engine: Engine, adapter: ScriptedAdapter, lifecycle: Chain, seen: Seen, name: str
) -> None:
    """What always fails ends as a dead letter, and those behind it run."""
    seen.fails["approved"] = [ValueError("never")] * 9
    plan = replace(make_consumer(seen.handle, lifecycle, name=name, retry=SOON), hold_key=True)
    with running(make_app(adapter, engine, plan)):
        for state in LINE["states"]:
            adapter.deliver(event(state))
        seen.wait_for("purchased", "shipped", "delivered")
    (dead,) = adapter.buried
    assert dead.headers[names.REASON] == "attempts-exhausted"


@pytest.mark.parametrize(
    ("acts", "tried"), [("s", False), ("ss", False), ("sh", True), ("hs", True), ("h", True)]
)
def test_a_retry_of_a_strategy_is_no_try(acts: str, tried: bool) -> None:
    """Only a failure of the handler is remembered as a try, whatever strategies ask for before or after it."""
    failed = datetime(2026, 1, 1, tzinfo=UTC)
    carried: dict[str, str] = {}
    for number, act in enumerate(acts):
        delivery = a_delivery(carried, failed if number else None)
        verdict = before_a_try(retry("not yet")) if act == "s" else retry("no", error=ValueError("no"))
        carried |= tries_of(delivery, verdict)
    assert was_tried(a_delivery(carried, failed)) is tried


def a_delivery(carried: Mapping[str, str], failed: datetime | None) -> Delivery:
    """Return a copy that carries these headers."""
    return Delivery(Message("orders", b"{}", headers=dict(carried), first_failed_at=failed))


def test_an_immediate_try_is_a_try() -> None:
    """A message that failed in this delivery, and waits for its next try at once, is not settled as late in silence."""
    delivery = Delivery(Message(topic="orders", body=b"{}"))
    assert not was_tried(delivery)
    delivery.immediate = 1
    assert was_tried(delivery)


@pytest.mark.parametrize(("crashes", "tried"), [(1, True), (0, False)])
def test_a_death_in_its_handler_is_a_try(crashes: int, tried: bool) -> None:
    """What ran when its process died is not settled as late in silence; what only was in the same unit was never tried."""
    delivery = Delivery(Message(topic="orders", body=b"{}"))
    delivery.suspect, delivery.crashes = True, crashes
    assert was_tried(delivery) is tried
