"""Messages that wait in a scheduler, each with a key of its own."""

from oncemq.common.clock import Clock
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.message.envelope import Delivery, Message


def put(scheduler: Scheduler, count: int) -> None:
    """Let so many messages wait."""
    for number in range(count):
        delivery = Delivery(Message("orders", b""), token=number, generation=1)
        delivery.key = str(number)
        scheduler.put([delivery])


def waiting(clock: Clock, count: int) -> Scheduler:
    """Return a scheduler in which so many messages wait."""
    scheduler = Scheduler(clock)
    put(scheduler, count)
    return scheduler
