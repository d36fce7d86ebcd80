"""`on_retry: hold_key`: later messages of a key wait behind the one that is retried."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from oncemq.engine.plan import ConsumerPlan
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.none import NoStrategy
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.benches.parking import SOON, Seen, adapter, name, order, parked, seen
from support.database.databases import database, engine
from support.engine import make_app, make_consumer, running
from support.units import build

__all__ = ["adapter", "database", "engine", "name", "parked", "seen"]


@pytest.fixture
def holding(engine: Engine, seen: Seen, name: str) -> ConsumerPlan:
    """Return a consumer that holds keys after a retry."""
    return make_consumer(seen.handle, [build(UniqueKey, engine, name)], name=name, retry=SOON, hold_key=True)


def test_a_held_key_keeps_its_order_through_a_retry(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """While a1 is tried again a2 and a3 wait behind it, b1 does not; the broker is acknowledged for all."""
    seen.fails["a1"] = [ValueError("no"), ValueError("no")]
    with running(make_app(adapter, engine, holding)):
        for body in (order(1), order(2), order(1, "b"), order(3)):
            adapter.deliver(body)
        seen.wait_for("b1", "a1", "a2", "a3")
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
    assert (adapter.retried, parked()) == ([], 0)


def test_many_held_messages_keep_their_order(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """There are more of them than have their turn at once, and every twentieth fails, too."""
    seen.fails |= {f"a{number}": [ValueError("no")] for number in range(1, 101, 20)}
    with running(make_app(adapter, engine, holding)):
        for number in range(1, 101):
            adapter.deliver(order(number))
        seen.wait_for(*(f"a{number}" for number in range(1, 101)))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 100)
    assert parked() == 0


def test_without_holding_later_messages_overtake_a_retry(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, name: str
) -> None:
    """The default: a message that is tried again loses its place."""
    seen.fails["a1"] = [ValueError("no")]
    plain = make_consumer(seen.handle, holding.strategies, name=name, retry=SOON)
    with running(make_app(adapter, engine, plain)):
        adapter.deliver(order(1))
        adapter.deliver(order(2))
        seen.wait_for("a2")
        adapter.wait_until(lambda broker: len(broker.retried) == 1)


def test_a_held_message_that_is_given_up_lets_the_others_go(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """After the dead letter of a1, a2 runs."""
    seen.fails["a1"] = [ValueError("no")] * 3
    with running(make_app(adapter, engine, holding)):
        adapter.deliver(order(1))
        adapter.deliver(order(2))
        seen.wait_for("a2")
        adapter.wait_until(lambda broker: bool(broker.buried))
    assert (seen.ids, parked()) == (["a1", "a1", "a1", "a2"], 0)


def test_many_messages_behind_one_that_is_given_up_go_in_their_order(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """More of them than have their turn at once."""
    seen.fails["a1"] = [ValueError("no")] * 3
    with running(make_app(adapter, engine, holding)):
        for number in range(1, 101):
            adapter.deliver(order(number))
        seen.wait_for(*(f"a{number}" for number in range(2, 101)))
    assert parked() == 0


def test_a_copy_of_a_held_message_is_held_once(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """A redelivery of what is parked takes effect once."""
    seen.fails["a1"] = [ValueError("no")]
    with running(make_app(adapter, engine, holding)):
        for body in (order(1), order(2), order(1), order(2)):
            adapter.deliver(body)
        seen.wait_for("a1", "a2")
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
    assert (seen.done, parked()) == (["a1", "a2"], 0)


def test_messages_of_one_identity_with_different_contents_all_wait(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, parked: Callable[[], int], name: str
) -> None:
    """Where the key is the identity, what comes early twice is two messages: neither is lost as the other's copy."""
    line = {"to": "body.id", "states": ["a1", "a2", "a3"], "early": "park"}
    chain = [build(StateMachine, engine, name, line)]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, identity=("key",))
    with running(make_app(adapter, engine, plan)):
        for number in (3, 2, 1):
            adapter.deliver(order(number))
        seen.wait_for("a1", "a2", "a3")
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 3)
    assert parked() == 0


def test_held_messages_of_one_identity_with_different_contents_all_run(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, parked: Callable[[], int], name: str
) -> None:
    """Where nothing is protected every message runs, also those that waited behind one of the same identity."""
    seen.fails["a1"] = [ValueError("no")]
    chain = [build(NoStrategy, engine, name)]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, identity=("key",), hold_key=True)
    with running(make_app(adapter, engine, plan)):
        for number in (1, 2, 3):
            adapter.deliver(order(number))
        seen.wait_for("a1", "a2", "a3")
    assert parked() == 0
