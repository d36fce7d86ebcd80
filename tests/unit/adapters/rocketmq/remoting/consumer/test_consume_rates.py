"""Rates of a member's topics, as administrators ask for them."""

import pytest

from oncemq_adapters.rocketmq.remoting.consumer import consume_rates
from oncemq_adapters.rocketmq.remoting.consumer.consume_rates import ConsumeRates
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq_client.protocol import StoredMessage


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    clock = [100.0]
    monkeypatch.setattr(consume_rates, "monotonic", lambda: clock[0])
    return clock


def worked(number: int, pulled: int, settled: int, moved: int = 0) -> ProcessQueue:
    """Return a queue in which something was done."""
    queue = ProcessQueue(("orders", "broker-a", number), 1)
    queue.begin(0, 0, ())
    queue.advance(pulled, [StoredMessage("orders", b"x", {}, offset, 0, 0, 0, 0) for offset in range(pulled)])
    offsets = list(range(settled))
    assert not queue.claim_all(offsets)
    assert queue.finish(offsets)
    queue.work.moved = moved
    return queue


def test_rates_are_those_of_the_time_between_samples(now: list[float]) -> None:
    """Of all queues of a topic; those that failed are told apart, and what waits gives the time of one message."""
    queues = [worked(0, 30, 20, moved=5), worked(1, 10, 10)]
    rates = ConsumeRates(lambda: queues)
    now[0] += 10
    rates.sample()
    found = rates.by_topic()["orders"]
    assert (found["pullTPS"], found["consumeOKTPS"], found["consumeFailedTPS"]) == (4.0, 2.5, 0.5)
    assert found["consumeFailedMsgs"] == 5
    assert found["consumeRT"] == pytest.approx(1000 * 10 / 3)


def test_a_queue_that_goes_takes_nothing_back(now: list[float]) -> None:
    """What was done in it stays counted, once."""
    queues = [worked(0, 30, 30)]
    rates = ConsumeRates(lambda: list(queues))
    rates.sample()
    queues.clear()
    now[0] += 10
    rates.sample()
    now[0] += 10
    rates.sample()
    assert rates.by_topic()["orders"]["pullTPS"] == pytest.approx(30 / 20)
