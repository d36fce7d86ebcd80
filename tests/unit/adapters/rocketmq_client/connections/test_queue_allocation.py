"""Queues are divided as Java's classes divide them; the tests with Java's client compare both."""

from oncemq_adapters.rocketmq_client.connections.queue_allocation import allocate
from oncemq_adapters.rocketmq_client.names import (
    AVERAGELY,
    BY_CIRCLE,
    CONSISTENT_HASH,
)

MEMBERS = ["a", "b", "c"]


def shares(rule: str, count: int) -> list[list[int]]:
    """Return the numbers of the queues of each member."""
    queues = [("broker", number) for number in range(count)]
    return [[number for _, number in allocate(rule, "t", me, queues, MEMBERS)] for me in MEMBERS]


def test_averagely_gives_neighbouring_queues() -> None:
    """The first members have one more; every queue once."""
    assert shares(AVERAGELY, 8) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert shares(AVERAGELY, 2) == [[0], [1], []]


def test_by_circle_deals_them_out() -> None:
    """One after the other, as cards are dealt."""
    assert shares(BY_CIRCLE, 8) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert shares(BY_CIRCLE, 2) == [[0], [1], []]


def test_a_ring_gives_every_queue_to_one_member() -> None:
    """And a member that leaves changes nothing for the queues of the others."""
    found = shares(CONSISTENT_HASH, 50)
    assert sorted(number for share in found for number in share) == list(range(50))
    queues = [("broker", number) for number in range(50)]
    left = {number for _, number in allocate(CONSISTENT_HASH, "t", "a", queues, ["a", "b"])}
    assert set(found[0]) <= left
