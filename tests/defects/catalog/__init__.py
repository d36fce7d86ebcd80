"""Every seeded defect, by what it hurts."""

from defects.catalog import looking_after, page
from defects.catalog.brokers import (
    adapters,
    beside_java,
    guarding,
    hostile_messages,
    kafka,
    publishing,
    reading,
    rocketmq,
)
from defects.catalog.engine import (
    acknowledging,
    alone,
    blaming,
    breaking,
    claims,
    committing,
    ending,
    failing,
    ordering,
    rehearsing,
    replacing,
)
from defects.catalog.ledger import (
    claiming,
    equality,
    generations,
    in_redis,
    one_clock,
    remembering,
    sharding,
    stored,
)
from defects.defect import Defect, told_apart

DEFECTS: tuple[Defect, ...] = told_apart(
    *committing.DEFECTS,
    *remembering.DEFECTS,
    *acknowledging.DEFECTS,
    *ordering.DEFECTS,
    *ending.DEFECTS,
    *replacing.DEFECTS,
    *blaming.DEFECTS,
    *failing.DEFECTS,
    *breaking.DEFECTS,
    *rehearsing.DEFECTS,
    *claims.DEFECTS,
    *adapters.DEFECTS,
    *publishing.DEFECTS,
    *reading.DEFECTS,
    *in_redis.DEFECTS,
    *hostile_messages.DEFECTS,
    *looking_after.DEFECTS,
    *page.DEFECTS,
    *guarding.DEFECTS,
    *claiming.DEFECTS,
    *equality.DEFECTS,
    *one_clock.DEFECTS,
    *alone.DEFECTS,
    *rocketmq.DEFECTS,
    *beside_java.DEFECTS,
    *kafka.DEFECTS,
    *stored.DEFECTS,
    *sharding.DEFECTS,
    *generations.DEFECTS,
)
