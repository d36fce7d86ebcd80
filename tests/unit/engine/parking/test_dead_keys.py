"""`on_dead: hold_key`: after a dead letter of a key its later messages wait until a person decides about it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select

from oncemq.engine.plan import ConsumerPlan
from oncemq.errors import InvalidPayload, Reject
from oncemq.ledger.messages import held_letters, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Message
from oncemq.message.reader import Reader
from oncemq.observe.events import Observer
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.sequence.strategy import SequenceStrategy
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.program import eventually
from support.benches.parking import SOON, Seen, adapter, name, order, parked, seen
from support.database.databases import database, engine
from support.engine import make_app, make_consumer, running
from support.units import build

__all__ = ["adapter", "database", "engine", "name", "parked", "seen"]


class Heard(Observer):
    """What an operator hears of keys that are held."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, int | None]] = []
        self._changed = threading.Condition()

    def key_held(self, consumer: str, delivery: Delivery, *, most: int | None = None) -> None:
        """Note it."""
        with self._changed:
            self.keys.append((delivery.known_key, most))
            self._changed.notify_all()

    def wait_for(self, *keys: tuple[str, int | None]) -> None:
        """Wait until exactly these were told, in this order."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.keys) >= len(keys), 20)
        assert self.keys == list(keys)


HELD = ("a", None)


@pytest.fixture
def heard() -> Heard:
    """Return a fresh record."""
    return Heard()


@pytest.fixture
def holding(engine: Engine, seen: Seen, name: str) -> ConsumerPlan:
    """Return a consumer whose dead letters hold their keys."""
    return _holding(engine, seen, name)


def _holding(engine: Engine, seen: Seen, name: str, most: int = 1000) -> ConsumerPlan:
    chain = [build(UniqueKey, engine, name)]
    return make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True, hold_dead=most)


def _letters(engine: Engine, name: str) -> list[tuple[str, str]]:
    """Return id and reason of the dead letters that hold keys."""
    with engine.connect() as connection:
        found = held_letters.letters(connection, f"shop.{name}")
        return [(each.id, each.message.headers["oncemq-reason"]) for each in found]


def _busy(adapter: ScriptedAdapter, seen: Seen) -> threading.Event:
    """Keep the worker busy until the returned event is set: what is delivered meanwhile is one unit."""
    going_on, begun = threading.Event(), threading.Event()

    class Slow(list[Exception]):
        """Has no error, and tells that after a while."""

        def __bool__(self) -> bool:
            begun.set()
            assert going_on.wait(20)
            return False

    seen.fails["z1"] = Slow()
    adapter.deliver(order(1, "z"))
    assert begun.wait(20)
    return going_on


def _decide(engine: Engine, name: str, act: Callable[..., bool], *wanted: str) -> None:
    for each in wanted:
        with engine.begin() as connection:
            assert act(connection, f"shop.{name}", each)


def test_later_messages_wait_behind_a_dead_letter_and_run_behind_it_once_it_is_replayed(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, name: str, heard: Heard
) -> None:
    """a1 is given up: b1 runs, a2 and a3 do not, also in a unit of their own; the broker is acknowledged for all."""
    seen.fails["a1"] = [ValueError("no")] * 3
    with running(make_app(adapter, engine, holding), observers=[heard]):
        for body in (order(1), order(2), order(1, "b"), order(3)):
            adapter.deliver(body)
        seen.wait_for("b1")
        heard.wait_for(HELD)
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
        ((letter, reason),) = _letters(engine, name)
        assert (reason, adapter.buried, seen.done) == ("attempts-exhausted", [], ["b1"])
        _decide(engine, name, held_letters.revive, letter)
        seen.wait_for("b1", "a1", "a2", "a3")
    assert _letters(engine, name) == []


def test_another_process_sees_that_the_key_is_held(
    engine: Engine,
    adapter: ScriptedAdapter,
    holding: ConsumerPlan,
    seen: Seen,
    parked: Callable[[], int],
    heard: Heard,
) -> None:
    """Two processes share a ledger: a1 is given up in one, a2 comes to the other."""
    seen.fails["a1"] = [Reject("never")]
    other, also = ScriptedAdapter(), make_consumer(seen.handle, holding.strategies, name=holding.name)
    also = replace(also, hold_key=True, hold_dead=1000)
    with (
        running(make_app(adapter, engine, holding), observers=[heard]),
        running(make_app(other, engine, also)),
    ):
        adapter.deliver(order(1))
        heard.wait_for(HELD)
        other.deliver(order(2))
        other.wait_until(lambda broker: len(broker.acknowledged) == 1)
        assert (seen.done, parked()) == ([], 2)


def test_a_purge_lets_the_others_go(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, name: str, heard: Heard
) -> None:
    """Without the dead letter, in their order, more of them than have their turn at once."""
    seen.fails["a1"] = [Reject("never")]
    with running(make_app(adapter, engine, holding), observers=[heard]):
        for number in range(1, 41):
            adapter.deliver(order(number))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 40, timeout=30)
        assert seen.done == []
        _decide(engine, name, held_letters.remove, *(letter for letter, _ in _letters(engine, name)))
        seen.wait_for(*(f"a{number}" for number in range(2, 41)))


def test_what_follows_a_refusal_in_the_same_unit_waits(
    engine: Engine,
    adapter: ScriptedAdapter,
    holding: ConsumerPlan,
    seen: Seen,
    parked: Callable[[], int],
    heard: Heard,
) -> None:
    """A handler that rejects at once leaves no moment at which a2 could be applied."""
    seen.fails["a1"] = [Reject("never")]
    # The second unit has two messages: the first one was short.
    plan = replace(holding, unit_time=timedelta(minutes=1))
    with running(make_app(adapter, engine, plan), observers=[heard]):
        busy = _busy(adapter, seen)
        for body in (order(1), order(2), order(1, "b"), order(2, "b")):
            adapter.deliver(body)
        busy.set()
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 5)
        seen.wait_for("z1", "b1", "b2")
    assert parked() == 2


def test_a_replayed_message_that_fails_again_holds_its_key_again(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, seen: Seen, name: str, heard: Heard
) -> None:
    """It keeps its place: with fresh attempts, before a2."""
    seen.fails["a1"] = [Reject("never"), Reject("still")]
    with running(make_app(adapter, engine, holding), observers=[heard]):
        adapter.deliver(order(1))
        adapter.deliver(order(2))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 2)
        before = _letters(engine, name)
        _decide(engine, name, held_letters.revive, before[0][0])
        heard.wait_for(HELD, HELD)
        assert _letters(engine, name) == before
        _decide(engine, name, held_letters.revive, before[0][0])
        seen.wait_for("a1", "a2")


def test_a_copy_of_a_dead_letter_is_kept_once(
    engine: Engine,
    adapter: ScriptedAdapter,
    holding: ConsumerPlan,
    seen: Seen,
    parked: Callable[[], int],
    heard: Heard,
) -> None:
    """The broker delivers again what it was not acknowledged for: that is no message behind the dead letter."""
    seen.fails["a1"] = [Reject("never")]
    with running(make_app(adapter, engine, holding), observers=[heard]):
        for body in (order(1), order(1), order(2), order(2)):
            adapter.deliver(body)
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
    assert parked() == 2


def test_above_the_limit_messages_are_dead_letters_at_their_places(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, heard: Heard
) -> None:
    """Two may wait: a4 and a5 have to be replayed, too, in whatever order that is asked for, and run behind the others."""
    seen.fails["a1"] = [Reject("never")]
    with running(make_app(adapter, engine, _holding(engine, seen, name, most=2)), observers=[heard]):
        for number in range(1, 6):
            adapter.deliver(order(number))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 5)
        heard.wait_for(HELD, ("a", 2), ("a", 2))
        found = _letters(engine, name)
        assert [reason for _, reason in found] == ["rejected", "held-key-full", "held-key-full"]
        first, *others = (letter for letter, _ in found)
        _decide(engine, name, held_letters.revive, first)
        seen.wait_for("a1", "a2", "a3")
        assert [letter for letter, _ in _letters(engine, name)] == others
        _decide(engine, name, held_letters.revive, *reversed(others))
        seen.wait_for("a1", "a2", "a3", "a4", "a5")


def test_a_body_that_its_schema_refuses_holds_its_key(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, heard: Heard
) -> None:
    """Also where the next message of the key is in the same take; replayed once the schema takes it, it runs first."""
    refuses = [True]

    def check(message: Message, body: object, key: str) -> None:
        if refuses and b"a1" in message.body:
            raise InvalidPayload("not by its schema")

    plan = replace(_holding(engine, seen, name), reader=_reader(name, check))
    with running(make_app(adapter, engine, plan), observers=[heard]):
        busy = _busy(adapter, seen)
        for body in (order(1), order(2), order(1, "b")):
            adapter.deliver(body)
        busy.set()
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
        heard.wait_for(HELD)
        seen.wait_for("z1", "b1")
        refuses.clear()
        _decide(engine, name, held_letters.revive, _letters(engine, name)[0][0])
        seen.wait_for("z1", "b1", "a1", "a2")


def test_with_sequence_the_numbers_behind_a_dead_letter_wait_for_it(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, heard: Heard
) -> None:
    """Those that came early and those that came later; its turn comes with its replay, then theirs."""
    seen.fails["a1"] = [Reject("never")]
    chain = [build(SequenceStrategy, engine, name, {"order": "body.n"})]
    fields: dict[str, Any] = {"retry": SOON, "hold_key": True, "hold_dead": 1000}
    with running(
        make_app(adapter, engine, make_consumer(seen.handle, chain, name=name, **fields)), observers=[heard]
    ):
        for number in (3, 1, 2, 4):
            adapter.deliver(order(number))
        heard.wait_for(HELD)
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 4)
        assert seen.done == []
        _decide(engine, name, held_letters.revive, _letters(engine, name)[0][0])
        seen.wait_for("a1", "a2", "a3", "a4")


def test_with_state_machine_early_messages_wait_for_the_dead_letter(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, heard: Heard
) -> None:
    """a2 came before a1 was given up, a3 after it: both follow the replayed one."""
    seen.fails["a1"] = [Reject("never")]
    line = {"to": "body.id", "states": ["a1", "a2", "a3"], "early": "park"}
    chain = [build(StateMachine, engine, name, line)]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True, hold_dead=1000)
    with running(make_app(adapter, engine, plan), observers=[heard]):
        for number in (2, 1, 3):
            adapter.deliver(order(number))
        heard.wait_for(HELD)
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 3)
        _decide(engine, name, held_letters.revive, _letters(engine, name)[0][0])
        seen.wait_for("a1", "a2", "a3")


@pytest.mark.parametrize("act", [held_letters.revive, held_letters.remove])
def test_a_gap_that_a_dead_letter_leaves_is_none_until_it_is_purged(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str, heard: Heard, act: Callable[..., bool]
) -> None:
    """a3 waits for a1 for longer than a gap may last, since a person decides about that: purged, it is a gap as any other."""
    seen.fails["a1"] = [Reject("never")]
    options = {"order": "body.n", "on_gap": "skip", "gap_timeout": "100ms"}
    chain = [build(SequenceStrategy, engine, name, options)]
    fields: dict[str, Any] = {"retry": SOON, "hold_key": True, "hold_dead": 1000}
    with running(
        make_app(adapter, engine, make_consumer(seen.handle, chain, name=name, **fields)), observers=[heard]
    ):
        adapter.deliver(order(1))
        heard.wait_for(HELD)
        adapter.deliver(order(2))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 2)
        _decide(engine, name, act, _letters(engine, name)[0][0])
        seen.wait_for(*(("a1", "a2") if act is held_letters.revive else ("a2",)))


def test_a_message_whose_own_wait_is_over_waits_on_while_its_key_is_held(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str
) -> None:
    """a3 came before a1 was given up: its `gap_timeout` must not let it pass the dead letter."""
    options = {"order": "body.n", "on_gap": "skip", "gap_timeout": "100ms"}
    chain = [build(SequenceStrategy, engine, name, options)]
    plan = make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True, hold_dead=1000)
    app = make_app(adapter, engine, plan)
    now = app.clock.now()
    long_ago = now - timedelta(hours=2)
    rows = [
        Parked(0, "a", "a3", 3, False, Message("orders", order(3)), "", long_ago, long_ago),
        Parked(0, "a", "a1", None, True, Message("orders", order(1)), "", now, parking.DEAD),
    ]
    with engine.begin() as connection:
        parking.add(connection, f"shop.{name}", rows)
    with running(app):
        eventually(lambda: _due(engine, name) > now + timedelta(seconds=10), "a later look", said=lambda: "")
    assert seen.done == []


def _due(engine: Engine, name: str) -> datetime:
    """Return when the message that is no dead letter is due."""
    mine = (parking.TABLE.c.consumer == f"shop.{name}", parking.TABLE.c.number == 3)
    with engine.connect() as connection:
        due_at: datetime = connection.execute(select(parking.TABLE.c.due_at).where(*mine)).scalar_one()
    return due_at


def test_without_a_key_a_dead_letter_goes_to_the_broker(
    engine: Engine, adapter: ScriptedAdapter, holding: ConsumerPlan, parked: Callable[[], int]
) -> None:
    """There is nothing that it could hold."""
    with running(make_app(adapter, engine, holding)):
        adapter.deliver(b"not json")
        adapter.wait_until(lambda broker: len(broker.dead) == 1)
    assert parked() == 0


def _reader(name: str, check: Callable[[Message, object, str], None]) -> Reader:
    decoder = make_decoder()
    return Reader(
        "main",
        "orders",
        name,
        key="body.key",
        version=None,
        identity=("body.id",),
        decoder=decoder,
        check=check,
    )
