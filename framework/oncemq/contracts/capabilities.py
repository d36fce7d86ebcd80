"""Capabilities of a broker through its adapter, in terms that the shipped suite tests."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Order(StrEnum):
    """A broker's promise about the order of messages of one group."""

    NONE = "none"
    TOPIC = "topic"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a broker through this adapter; the shipped suite tests what is claimed and what is denied.

    Args:
        delay: it can delay the delivery of a published message.
        precise_delay: delays are kept to about a second; otherwise they are rounded to the broker's steps.
        redelivered_flag: `Message.redelivered` is meaningful.
        order: the guarantee for one consumer without failures.
        competing: several members of a group may share one topic.
        partitioned: members share a topic by its queues: messages in a member's queue wait for this member,
            until it leaves or another one joins; messages behind an unsettled one may be redelivered with it.
        lease: deliveries expire (`Delivery.expires_at`) unless extended.
        outlives_connection: unsettled deliveries stay ours when the connection is lost, as long as their lease or the
            member's session lasts; otherwise every unsettled delivery is void then.
        cumulative_ack: settling many is cheaper than settling each.
        browse_dead_letters: dead letters can be listed, replayed and purged.
        survives_restart: confirmed messages outlive a restart of the broker.
        longest_delay: for how long it delays a message at most; None = no known limit.
        max_headers: the most bytes of a message's header names and values; None = no known limit.
        replies: `acknowledge` first sends a delivery's `answer` to who requested one; `dead_letter` sends it last, and only to
            who asks for `oncemq.message.headers.ANSWER_FAILURES`.
        requests: it publishes requests and receives their answers: an `oncemq.contracts.requests.RequestingAdapter`.
        broadcast: every instance of the app can receive every message of a topic, from `Subscription.broadcast`.
        transactions: it can hold a message until a database transaction has ended: an `oncemq.contracts.transactional_messages.TransactionalAdapter`.
    """

    delay: bool
    precise_delay: bool
    redelivered_flag: bool
    order: Order
    competing: bool
    lease: bool
    cumulative_ack: bool
    browse_dead_letters: bool
    survives_restart: bool
    transactions: bool = False
    replies: bool = False
    requests: bool = False
    partitioned: bool = False
    outlives_connection: bool = False
    broadcast: bool = False
    max_headers: int | None = None
    longest_delay: timedelta | None = None
