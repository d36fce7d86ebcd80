"""FastStream's publisher, every message confirmed: `python -m … one | many COUNT`, one by one or 1,000 in flight."""

import asyncio
import sys

from faststream.rabbit import RabbitBroker

from benchmarks.peers.environment import QUEUE, RABBITMQ, told
from benchmarks.peers.publishing.orders import Order, asked, order, timed

WINDOW = 1000


async def one(broker: RabbitBroker, orders: list[Order]) -> None:
    """Wait for each confirmation before the next message."""
    for each in orders:
        await broker.publish(each, told(QUEUE), persist=True, mandatory=True)


async def many(broker: RabbitBroker, orders: list[Order]) -> None:
    """Wait for the confirmations of 1,000 messages together."""
    queue = told(QUEUE)
    for start in range(0, len(orders), WINDOW):
        together = orders[start : start + WINDOW]
        await asyncio.gather(
            *(broker.publish(each, queue, persist=True, mandatory=True) for each in together)
        )


async def main() -> None:
    """Publish as asked, once connected."""
    orders = asked()
    async with RabbitBroker(told(RABBITMQ), logger=None) as broker:
        await broker.publish(order("first"), told(QUEUE), persist=True, mandatory=True)
        with timed(len(orders)):
            await {"one": one, "many": many}[sys.argv[1]](broker, orders)


if __name__ == "__main__":
    asyncio.run(main())
