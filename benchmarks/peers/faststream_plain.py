"""FastStream without a database, at least once: `python -m … empty | io_async | io_sync`, 32 messages at once."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from benchmarks.peers.environment import QUEUE, RABBITMQ, effect_outside, told
from benchmarks.stage.tables import OrderPaid

CONCURRENCY = 32


async def empty(order: OrderPaid) -> None:
    """Do nothing."""


async def io_async(order: OrderPaid) -> None:
    """Wait as for a web service, then have an effect."""
    await asyncio.sleep(0.02)
    effect_outside(order.order_id)


def io_sync(order: OrderPaid) -> None:
    """Wait as for a web service, then have an effect."""
    time.sleep(0.02)
    effect_outside(order.order_id)


def main(handler: Callable[[OrderPaid], Any]) -> None:
    """Run until told to stop."""
    broker = RabbitBroker(told(RABBITMQ), default_channel=Channel(prefetch_count=CONCURRENCY), logger=None)
    broker.subscriber(RabbitQueue(told(QUEUE), durable=True, declare=False))(handler)
    asyncio.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main({"empty": empty, "io_async": io_async, "io_sync": io_sync}[sys.argv[1]])
