"""Retries where order is strict: the message waits in this process, and its queue behind it, as Java's orderly members do."""

from collections.abc import Callable, Sequence

from oncemq.contracts.adapter import Later, SettleFailed
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.properties import with_headers
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member
from oncemq_adapters.rocketmq.remoting.consumer.settlement import claim, unclaim
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import believed
from oncemq_adapters.rocketmq.remoting.protocol.message_codec import StoredMessage


def hold_back(
    later: Sequence[Later], member_of: Callable[[Delivery], Member | None]
) -> Sequence[SettleFailed]:
    """Deliver each again after its delay, with its headers; a restart begins with the first attempt again."""
    failed = []
    for one in later:
        error = claim(one.delivery)
        member = member_of(one.delivery)
        if error is not None or member is None:
            if error is not None:
                failed.append(SettleFailed(one.delivery, error))
            continue
        window, queue, stored = one.delivery.token
        unclaim(one.delivery)
        one.delivery.settled = True
        member.steward.at(one.delay.total_seconds(), window.again, queue, _marked(stored, one))
    return failed


def _marked(stored: StoredMessage, later: Later) -> StoredMessage:
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
    )
    again.ours = True
    return again
