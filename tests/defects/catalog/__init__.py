"""Every seeded defect, by what it hurts."""

from defects.catalog import acknowledging, blaming, brokers, committing, ordering, reading, remembering
from defects.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *committing.DEFECTS,
    *remembering.DEFECTS,
    *acknowledging.DEFECTS,
    *ordering.DEFECTS,
    *blaming.DEFECTS,
    *brokers.DEFECTS,
    *reading.DEFECTS,
)
