"""What a broker can do through its adapter, in words that the shipped suite tests."""

from dataclasses import dataclass
from enum import StrEnum


class Order(StrEnum):
    """What a broker promises about the order of messages of one group."""

    NONE = "none"
    TOPIC = "topic"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a broker can do through this adapter; the shipped suite tests what is claimed and what is denied.

    Args:
        delay: it can deliver a published message later.
        precise_delay: delays are kept to about a second; otherwise they are rounded to the broker's steps.
        redelivered_flag: `Message.redelivered` is meaningful.
        order: what holds for one consumer without failures.
        competing: several members of a group may share one topic.
        partitioned: members share a topic by its queues: what waits in a member's queue waits for this member,
            until it leaves or another one joins; what lies behind an unsettled message may come again with it.
        lease: deliveries expire (`Delivery.expires_at`) unless extended.
        outlives_connection: what is leased stays ours when the connection is lost, and a loss is never told;
            otherwise every unsettled delivery is void then.
        cumulative_ack: settling many is cheaper than settling each.
        browse_dead_letters: dead letters can be listed, replayed and purged.
        survives_restart: confirmed messages outlive a restart of the broker.
        max_headers: bytes of a message's header names and values that it takes at most; None = nobody knows of a limit.
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
    partitioned: bool = False
    outlives_connection: bool = False
    max_headers: int | None = None
