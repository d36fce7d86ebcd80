"""A delay queue without a leader is silent for ever: its messages are retried all the same."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from oncemq.contracts.adapter import RetryRequest, Subscription
from oncemq.errors import BrokerError
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq.connection.errors import Unconfirmed
from support.brokers.rabbitmq import adapter_on, connect


def test_a_delay_queue_that_never_confirms_holds_up_no_retry(
    rabbitmq_url: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next longer delay is used. The silence is played: only a kill of the broker at the right moment makes one."""
    subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group", {})
    adapter, sink = adapter_on(rabbitmq_url), RecordingSink()
    adapter.open([subscription], sink)
    queue = f"{fresh}-group.{fresh}.paid"
    connection = connect(rabbitmq_url)
    connection.channel().basic_publish("", queue, b"x")
    connection.close()
    (delivery,) = sink.wait_for(1)
    send = adapter._publisher.send

    def without_a_leader(publications: Sequence[Any], *, own: bool) -> list[BrokerError | None]:
        if publications[0].routing_key == f"{queue}.retry.100":
            return [Unconfirmed("not confirmed in time")]
        return send(publications, own=own)

    monkeypatch.setattr(adapter._publisher, "send", without_a_leader)
    request = RetryRequest(delivery, timedelta(milliseconds=100), {})
    assert adapter.retry([request])
    assert not adapter.retry([request])
    assert sink.wait_for(2)[1].message.body == b"x"
    adapter.close(grace=timedelta(seconds=5))
