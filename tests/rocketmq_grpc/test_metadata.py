"""A handler can ask where its message lay, also behind a real proxy."""

from datetime import UTC, datetime, timedelta

from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite.bench import Bench
from oncemq_adapters.rocketmq.metadata import RocketMQMetadata


def test_a_proxy_tells_queue_offset_times_and_hosts(bench: Bench) -> None:
    """Each message has a place of its own; the count is that of tries before, not the proxy's of deliveries."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    bench.publish(topic, *[OutgoingMessage(b"%d" % number, key="k") for number in range(3)])
    found = [RocketMQMetadata.read(delivery.message.metadata_source) for delivery in bench.receive(member, 3)]
    told = [each for each in found if each is not None]
    assert len({(each.queue_id, each.queue_offset) for each in told}) == 3
    assert {each.queue_id for each in told} <= {0, 1, 2, 3}
    for each in told:
        assert each.born_at is not None
        assert each.stored_at is not None
        assert abs(each.stored_at - each.born_at) < timedelta(minutes=1)
        assert abs(each.born_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert each.born_host
        assert each.store_host
        assert each.reconsume_times == 0
