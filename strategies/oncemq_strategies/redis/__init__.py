"""Locks in Redis, by themselves: what the strategy `redis_lock` uses, for scripts and handlers of one's own.

    from oncemq_strategies.redis import Lock

    with Lock("redis://localhost:6379/0", "order-lock-42"):
        ...

Data, messages and names are Redisson's, so Java services on Redisson and Python take part in the same locks.
"""

from oncemq_strategies.redis.fair import FairLock
from oncemq_strategies.redis.fenced import FencedLock
from oncemq_strategies.redis.lock import Lock, NotHeld, Replicas
from oncemq_strategies.redis.multi import MultiLock
from oncemq_strategies.redis.names import BadLockName

__all__ = ["BadLockName", "FairLock", "FencedLock", "Lock", "MultiLock", "NotHeld", "Replicas"]
