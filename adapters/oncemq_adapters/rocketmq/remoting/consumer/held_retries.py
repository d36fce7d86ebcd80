"""Retries of queues that are delivered one by one: held in memory, so that later messages of the queue wait behind them."""

from collections.abc import Callable, Sequence

from oncemq.contracts.adapter import RetryRequest, SettleFailed
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.properties import with_headers
from oncemq_adapters.rocketmq.remoting.consumer import direct_runs
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member
from oncemq_adapters.rocketmq.remoting.consumer.settlement import claim, unclaim
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import believed
from oncemq_adapters.rocketmq_client.protocol import StoredMessage


def hold_back(
    later: Sequence[RetryRequest], member_of: Callable[[Delivery], Member | None]
) -> Sequence[SettleFailed]:
    """Deliver each again after its delay, with its headers; a restart begins with the first attempt again."""
    failed = []
    for request in later:
        error = claim(request.delivery)
        member = member_of(request.delivery)
        if error is not None or member is None:
            if error is not None:
                failed.append(SettleFailed(request.delivery, error))
            continue
        window, queue, stored = request.delivery.token
        unclaim(request.delivery)
        request.delivery.settled = True
        if window.trace is not None:
            window.trace.ended(window.group, [request.delivery], fine=False)
        if (direct := direct_runs.queue_of(request.delivery)) is not None:
            direct.tell()
        member.steward.at(request.delay.total_seconds(), window.again, queue, _marked(stored, request))
    return failed


def _marked(stored: StoredMessage, later: RetryRequest) -> StoredMessage:
    again = StoredMessage(
        stored.topic,
        stored.body,
        with_headers(believed(stored), later.headers),
        stored.offset,
        stored.born,
        stored.stored,
        stored.attempts,
        stored.flag,
        stored.trouble,
        stored.packing,
        head=stored.head,
    )
    again.ours = True
    return again
