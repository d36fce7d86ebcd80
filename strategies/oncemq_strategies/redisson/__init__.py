"""Locks and Bloom filters in Redis, usable alone in scripts and handlers.

    from oncemq_strategies.redisson import Lock

    with Lock("redis://localhost:6379/0", "order-lock-42"):
        ...

    filter = BloomFilter("redis://localhost:6379/0", "orders-seen")
    filter.try_init(expected=1_000_000, false_positives=0.01)
    filter.add("order-42")

Data, messages and names are Redisson's, so Java services on Redisson and Python share the same locks and filters.
"""

from oncemq_strategies.redisson.bloom import BloomFilter, NoSuchFilter
from oncemq_strategies.redisson.fair import FairLock
from oncemq_strategies.redisson.fenced import FencedLock
from oncemq_strategies.redisson.lock import Lock, NotHeld, Replicas
from oncemq_strategies.redisson.multi import MultiLock
from oncemq_strategies.redisson.names import BadFilterName, BadLockName
from oncemq_strategies.redisson.read_write.locks import ReadLockHeld, ReadWriteLock
from oncemq_strategies.redisson.semaphores.counting import Semaphore
from oncemq_strategies.redisson.semaphores.expirable import ExpirableSemaphore, Permit

__all__ = [
    "BadFilterName",
    "BadLockName",
    "BloomFilter",
    "ExpirableSemaphore",
    "FairLock",
    "FencedLock",
    "Lock",
    "MultiLock",
    "NoSuchFilter",
    "NotHeld",
    "Permit",
    "ReadLockHeld",
    "ReadWriteLock",
    "Replicas",
    "Semaphore",
]
