"""Every seeded defect, by what it hurts."""

from defects.catalog import (
    acknowledging,
    alone,
    blaming,
    brokers,
    claiming,
    committing,
    ending,
    equality,
    failing,
    guarding,
    hostile_messages,
    in_redis,
    looking_after,
    one_clock,
    ordering,
    publishing,
    reading,
    remembering,
)
from defects.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *committing.DEFECTS,
    *remembering.DEFECTS,
    *acknowledging.DEFECTS,
    *ordering.DEFECTS,
    *ending.DEFECTS,
    *blaming.DEFECTS,
    *failing.DEFECTS,
    *brokers.DEFECTS,
    *publishing.DEFECTS,
    *reading.DEFECTS,
    *in_redis.DEFECTS,
    *hostile_messages.DEFECTS,
    *looking_after.DEFECTS,
    *guarding.DEFECTS,
    *claiming.DEFECTS,
    *equality.DEFECTS,
    *one_clock.DEFECTS,
    *alone.DEFECTS,
)
