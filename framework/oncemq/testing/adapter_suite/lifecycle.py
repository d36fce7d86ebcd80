"""Suite part: opening, closing, health and depth, and helpful errors without secrets."""

from datetime import timedelta

import pytest

from oncemq.contracts.adapter import Adapter, ConsumerHealth
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, numbered
from oncemq.testing.recording_sink import RecordingSink

GRACE = timedelta(seconds=1)


class Lifecycle(SuitePart):
    """From build to close."""

    def _open(self, bench: Bench, adapter: Adapter) -> None:
        bench.adopt(adapter).open([bench.subscription(bench.topic())], RecordingSink())

    def test_close_twice(self, bench: Bench) -> None:
        """Closing again does nothing."""
        member = bench.open(bench.subscription(bench.topic()))
        member.adapter.close(grace=GRACE)
        member.adapter.close(grace=GRACE)

    def test_close_without_open(self, bench: Bench) -> None:
        """An adapter that was only built can be closed."""
        bench.harness.make_adapter().close(grace=GRACE)

    def test_close_after_failed_open(self, bench: Bench) -> None:
        """An adapter whose open failed can be closed."""
        adapter = bench.harness.unreachable()
        with pytest.raises(BrokerUnavailable):
            self._open(bench, adapter)
        adapter.close(grace=GRACE)

    def test_nothing_arrives_after_close(self, bench: Bench) -> None:
        """When close has returned, the sink is left alone."""
        topic = bench.topic()
        member = bench.open(bench.subscription(topic))
        bench.close(member)
        bench.publish(topic, b"x")
        bench.nothing_more(member, 0)

    @pytest.mark.parametrize("call", ["open", "prepare"])
    def test_unreachable_broker_is_named(self, bench: Bench, call: str) -> None:
        """A broker that is not there is BrokerUnavailable, and the error says where it was looked for."""
        adapter = bench.adopt(bench.harness.unreachable())
        subscription = bench.subscription(bench.topic())
        with pytest.raises(BrokerUnavailable) as caught:
            adapter.open([subscription], RecordingSink()) if call == "open" else adapter.prepare(
                [subscription]
            )
        assert bench.harness.address in str(caught.value)
        self._keeps_secrets(bench, str(caught.value), repr(adapter))

    def test_unwelcome_adapter_is_refused(self, bench: Bench) -> None:
        """A broker that says no is BrokerRefused: trying again would not help."""
        adapter = bench.harness.unwelcome()
        with pytest.raises(BrokerRefused) as caught:
            self._open(bench, adapter)
        self._keeps_secrets(bench, str(caught.value), repr(caught.value), repr(adapter))

    def test_repr_keeps_secrets(self, bench: Bench) -> None:
        """Neither `repr` nor health rows show credentials."""
        member = bench.open(bench.subscription(bench.topic()))
        self._keeps_secrets(bench, repr(member.adapter), str(member.adapter), repr(member.adapter.health()))

    def test_health_of_an_open_adapter(self, bench: Bench) -> None:
        """An open adapter says of each expected consumer that it is subscribed."""
        first = bench.subscription(bench.topic("one"), "one")
        second = bench.subscription(bench.topic("two"), "two")
        rows = bench.open(first, second).adapter.health()
        assert sorted(rows, key=_name) == [
            ConsumerHealth("one", subscribed=True),
            ConsumerHealth("two", subscribed=True),
        ]

    def test_health_after_close(self, bench: Bench) -> None:
        """A closed adapter claims no subscribed consumer."""
        member = bench.open(bench.subscription(bench.topic()))
        bench.close(member)
        assert not any(row.subscribed for row in member.adapter.health())

    def test_health_names_the_trouble(self, bench: Bench) -> None:
        """During an outage the row says that it is not subscribed, and why, without secrets."""
        member = bench.open(bench.subscription(bench.topic()))
        bench.harness.stop()
        try:
            bench.eventually(lambda: not bench.subscribed(member), "health to notice")
            (row,) = member.adapter.health()
        finally:
            bench.harness.start()
        assert row.detail
        self._keeps_secrets(bench, row.detail)

    def test_prepare_consumes_nothing(self, bench: Bench) -> None:
        """A prepared adapter leaves the messages to those who consume; it can be opened afterwards."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        adapter = bench.prepare(subscription)
        bench.publish(topic, *numbered(3))
        sink = RecordingSink()
        assert sink.stays_at(0, bench.harness.silence)
        adapter.open([subscription], sink)
        assert sorted(bodies(sink.wait_for(3, bench.harness.patience))) == numbered(3)

    def test_preparing_twice_changes_nothing(self, bench: Bench) -> None:
        """Everything may be declared again by a second process."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        bench.prepare(subscription)
        bench.publish(topic, *numbered(3))
        bench.prepare(subscription)
        assert sorted(bodies(bench.receive(bench.open(subscription), 3))) == numbered(3)

    def test_depth_counts_what_waits(self, bench: Bench) -> None:
        """Depth is the number of messages that wait for the group, or None where the broker cannot say."""
        topic = bench.topic()
        subscription = bench.subscription(topic)
        adapter = bench.prepare(subscription)
        if adapter.depth(subscription) is None:
            # What cannot be counted is never counted as nothing, also where something waits.
            bench.publish(topic, *numbered(1))
            assert adapter.depth(subscription) is None
            return
        bench.publish(topic, *numbered(7))
        bench.eventually(lambda: adapter.depth(subscription) == 7, "a depth of 7")
        member = bench.open(subscription)
        bench.settled(member.adapter.acknowledge(bench.receive(member, 7)))
        bench.eventually(lambda: adapter.depth(subscription) == 0, "a depth of 0")

    def _keeps_secrets(self, bench: Bench, *texts: str) -> None:
        secret = bench.harness.secret
        assert not secret or not [text for text in texts if secret in text]


def _name(row: ConsumerHealth) -> str:
    return row.consumer
