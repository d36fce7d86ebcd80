"""The circuit: Redis is asked while it answers; its failures are said once, and cost few units their time."""

import logging

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq_strategies.common.redis_circuit import Circuit


class Client:
    """A client whose answers a test sets."""

    where = "Redis"

    def __init__(self):
        self.answer = [1]
        self.asked = 0

    def together(self, _calls):
        """Answer, or raise."""
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def client():
    """A client."""
    return Client()


@pytest.fixture
def now():
    """The time, in a list that a test changes."""
    return [100.0]


@pytest.fixture
def circuit(client, now):
    """A circuit."""
    return Circuit(client, lambda: now[0])


def test_an_open_circuit_asks_nothing(circuit, client, now):
    """Until its pause is over; then one asks, and the pause grows if that fails."""
    client.answer = RedisUnavailable("away")
    assert [circuit.ask(list) for _ in range(5)] == [None] * 5
    assert (client.asked, circuit.open) == (1, True)
    now[0] += 0.6
    assert [circuit.ask(list) for _ in range(5)] == [None] * 5
    assert client.asked == 2
    now[0] += 0.6
    circuit.ask(list)
    assert client.asked == 2


def test_failures_of_one_moment_are_one(circuit, client, now):
    """Who asked before it opened does not make the pause grow, however many did."""
    client.answer = RedisUnavailable("away")
    circuit.ask(lambda: [circuit.ask(list)])
    assert client.asked == 2
    now[0] += 0.6
    circuit.ask(list)
    assert client.asked == 3


def test_an_answer_closes_it(circuit, client, now, caplog):
    """It is said once that Redis is away, and once that it is back."""
    with caplog.at_level(logging.WARNING):
        client.answer = RedisUnavailable("away")
        for _ in range(5):
            circuit.ask(list)
            now[0] += 40
        client.answer = [1]
        assert circuit.ask(list) == [1]
        assert circuit.ask(list) == [1]
    assert not circuit.open
    assert [record.message for record in caplog.records] == [
        "away; until it answers again, the database decides alone about duplicates",
        "Redis answers again after 200.0 s",
    ]


def test_the_pause_has_an_end(circuit, client, now):
    """However long Redis was away, it is asked again within half a minute."""
    client.answer = RedisUnavailable("away")
    for _ in range(20):
        circuit.ask(list)
        now[0] += 30.1
    assert client.asked == 20


def test_one_refused_key_opens_nothing(circuit, client):
    """It may be of another type; a refusal of everything is a failure."""
    client.answer = [1, RedisRefused("WRONGTYPE")]
    circuit.ask(list)
    assert not circuit.open
    client.answer = [RedisRefused("NOPERM"), RedisRefused("NOPERM")]
    circuit.ask(list)
    assert circuit.open


def test_a_missing_answer_opens_it(circuit, client):
    """A part of a cluster is away."""
    client.answer = [1, RedisUnavailable("away")]
    assert circuit.ask(list) == client.answer
    assert circuit.open
