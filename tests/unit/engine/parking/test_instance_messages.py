"""Retries and dead letters of an instance: stored before the broker's message is acknowledged, and removed when they are done."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed, Subscription
from oncemq.engine.parking.instance_messages import InstanceMessages, InstanceSettling
from oncemq.ledger.messages import dead_letters, parking
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Envelope, Message, make_envelope
from oncemq.testing.scripted import ScriptedAdapter
from support.database.ledgers import ledger_engine

SCOPE = "shop.refresh@a"


class Broker(ScriptedAdapter):
    """Notes what is acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Delivery] = []

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Note them."""
        self.done += deliveries
        return ()


class Bench:
    """An instance on a broker and a ledger."""

    def __init__(self, engine: Engine, *, removes: bool = True) -> None:
        self.engine, self.broker = engine, Broker()
        subscription = Subscription("refresh", "orders", "g")
        self.messages = InstanceMessages(
            SCOPE, engine, SystemClock(), self.broker, subscription, self._understand
        )
        self.settling = InstanceSettling(self.broker, self.messages, hold_key=False, removes=removes)

    def _understand(self, delivery: Delivery) -> None:
        delivery.envelope, delivery.key = envelope_of(delivery.message), "k"

    def delivery(self) -> Delivery:
        """Return one of the broker's."""
        made = Delivery(Message("orders", b"{}", message_id="m1"), None)
        self._understand(made)
        return made

    def due(self) -> list[Delivery]:
        """Take what is due."""
        with self.engine.begin() as connection:
            return self.messages.sweep(connection)

    def counts(self) -> tuple[int, int]:
        """Return how many retries and dead letters there are."""
        with self.engine.connect() as connection:
            return parking.count(connection, SCOPE), dead_letters.count(connection, SCOPE)


def envelope_of(message: Message) -> Envelope:
    """Return the envelope of a message whose key is `k`."""
    return make_envelope("main", "orders", "g", "k", None, "k", message)


@pytest.fixture
def bench(sqlite_database: str) -> Iterator[Bench]:
    """Return one whose effects are outside the database."""
    with ledger_engine(sqlite_database) as engine:
        yield Bench(engine)


def later(delivery: Delivery, **headers: Any) -> RetryRequest:
    """Return a request for a retry at once."""
    return RetryRequest(delivery, timedelta(0), {names.ATTEMPT: "2", **headers})


def test_a_retry_is_stored_and_comes_back_with_its_attempts(bench: Bench) -> None:
    """The broker's message is acknowledged behind it; when the retry is done its row goes, without a word to the broker."""
    delivery = bench.delivery()
    assert not bench.settling.retry([later(delivery)])
    assert (bench.broker.done, bench.counts()) == ([delivery], (1, 0))
    (again,) = bench.due()
    assert again.message.attempt == 2
    assert not bench.settling.acknowledge([again])
    assert (bench.broker.done, bench.counts()) == ([delivery], (0, 0))


def test_what_is_not_stored_is_not_acknowledged(bench: Bench) -> None:
    """Else it would be lost: the broker does not deliver it again, and the ledger does not have it."""
    retried, dead = bench.delivery(), bench.delivery()
    parking.TABLE.drop(bench.engine)
    dead_letters.TABLE.drop(bench.engine)
    failed = [
        *bench.settling.retry([later(retried)]),
        *bench.settling.dead_letter([DeadLetterRequest(dead, {})]),
    ]
    assert [failure.delivery for failure in failed] == [retried, dead]
    assert bench.broker.done == []


def test_a_copy_that_waits_already_is_stored_once(bench: Bench) -> None:
    """Such as after a crash between the row and the acknowledgement."""
    for _ in range(2):
        assert not bench.settling.retry([later(bench.delivery())])
    assert bench.counts() == (1, 0)


def test_a_retry_that_fails_for_good_becomes_a_dead_letter(bench: Bench) -> None:
    """Its row goes in the same transaction; another process that has it by now keeps it."""
    bench.settling.retry([later(bench.delivery())])
    (again,) = bench.due()
    with bench.engine.begin() as connection:
        parking.postpone(connection, [again.token.id], SystemClock().now())
    (failure,) = bench.settling.dead_letter([DeadLetterRequest(again, {})])
    assert failure.delivery is again
    assert bench.counts() == (1, 0)
    (mine,) = bench.due()
    assert not bench.settling.dead_letter([DeadLetterRequest(mine, {names.REASON: "rejected"})])
    assert bench.counts() == (0, 1)
