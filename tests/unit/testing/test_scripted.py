"""The scripted adapter, the fake clock and the recording sink do what tests rely on."""

from datetime import timedelta

import pytest

from oncemq.contracts.adapter import DeadLetterRequest, Refused, RetryRequest, Subscription
from oncemq.errors import AlreadySettled, BrokerUnavailable, DeliveryVoid
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.recording_sink import RecordingSink
from oncemq.testing.scripted import ScriptedAdapter


@pytest.fixture
def sink() -> RecordingSink:
    """Return a sink."""
    return RecordingSink()


@pytest.fixture
def adapter(sink: RecordingSink) -> ScriptedAdapter:
    """Return an open adapter of one consumer."""
    adapter = ScriptedAdapter()
    adapter.open([Subscription("c", "t", "g")], sink)
    return adapter


def test_deliver_hands_over_in_the_callers_thread(adapter: ScriptedAdapter, sink: RecordingSink):
    """When deliver returns, the sink has the delivery."""
    delivery = adapter.deliver(b"x", headers={"a": "b"}, attempt=3)
    assert sink.deliveries("c") == [delivery]
    assert (delivery.message.topic, delivery.message.attempt) == ("t", 3)


def test_settlements_are_recorded_in_order(adapter: ScriptedAdapter):
    """Each settlement is kept where the test looks for it."""
    first, second, third, fourth = (adapter.deliver(b"x") for _ in range(4))
    assert adapter.acknowledge([first]) == []
    assert adapter.retry([RetryRequest(second, timedelta(1), {})]) == []
    assert adapter.dead_letter([DeadLetterRequest(third, {})]) == []
    assert adapter.give_back([fourth]) == []
    assert adapter.acknowledged == [first]
    assert [later.delivery for later in adapter.retried] == [second]
    assert [dead.delivery for dead in adapter.dead] == [third]
    assert adapter.given_back == [fourth]


def test_second_settlement_fails(adapter: ScriptedAdapter):
    """Settling twice is AlreadySettled, and recorded as refused."""
    delivery = adapter.deliver(b"x")
    adapter.acknowledge([delivery])
    (failed,) = adapter.acknowledge([delivery])
    assert isinstance(failed.error, AlreadySettled)
    assert adapter.refused == [failed]


def test_lost_connection_voids_deliveries(adapter: ScriptedAdapter, sink: RecordingSink):
    """Old deliveries are void and told to be; new ones are fine."""
    old = adapter.deliver(b"x")
    adapter.lose_connection()
    new = adapter.deliver(b"x")
    (failed,) = adapter.acknowledge([old, new])
    assert failed.delivery is old
    assert isinstance(failed.error, DeliveryVoid)
    assert [(loss.consumer, loss.generation) for loss in sink.losses()] == [("c", old.generation)]


def test_ordered_failures_happen_once(adapter: ScriptedAdapter):
    """A failure that was ordered leaves the delivery unsettled, and the next try works."""
    delivery = adapter.deliver(b"x")
    adapter.fail_next("acknowledge")
    (failed,) = adapter.acknowledge([delivery])
    assert isinstance(failed.error, BrokerUnavailable)
    assert adapter.acknowledge([delivery]) == []


def test_ordered_publish_failure_is_a_refusal(adapter: ScriptedAdapter):
    """Publishing records what was confirmed only."""
    adapter.fail_next("publish")
    refused, _ = adapter.publish("t", {}, [OutgoingMessage(b"1"), OutgoingMessage(b"2")])
    assert isinstance(refused, Refused)
    assert [sent.message.body for sent in adapter.published] == [b"2"]


def test_wait_until_gives_up(adapter: ScriptedAdapter):
    """What does not happen in time is an AssertionError with the counts."""
    with pytest.raises(AssertionError, match="0 acknowledged"):
        adapter.wait_until(lambda one: bool(one.acknowledged), timeout=0.01)


def test_sink_gives_up(sink: RecordingSink):
    """Waiting for too many deliveries says how many there were."""
    with pytest.raises(AssertionError, match="2 deliveries for all, got 0"):
        sink.wait_for(2, timeout=0.01)


def test_clock_moves_only_when_told():
    """Both times advance together, and never back."""
    clock = FakeClock()
    before = clock.now()
    clock.advance(timedelta(minutes=2))
    assert clock.now() - before == timedelta(minutes=2)
    assert clock.monotonic() == 120
    with pytest.raises(ValueError, match="back"):
        clock.advance(timedelta(seconds=-1))
