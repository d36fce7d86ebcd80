"""FastStream: the same ORM handler in a hand-written transaction with a dedup row, up to 20 messages at once.

`BENCH_EMPTY=1` leaves the handler empty, which is the most FastStream can do.
"""

import asyncio
import os

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from benchmarks.handlers import OrderPaid, Points, Processed

CONCURRENCY = 20

engine = create_async_engine(os.environ["BENCH_POSTGRESQL"], pool_size=CONCURRENCY, max_overflow=0)
sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(engine, expire_on_commit=False)
broker = RabbitBroker(os.environ["BENCH_RABBITMQ"], default_channel=Channel(prefetch_count=CONCURRENCY))
app = FastStream(broker)
queue = RabbitQueue(os.environ["BENCH_QUEUE"], durable=True, declare=False)


@broker.subscriber(queue)
async def award(order: OrderPaid) -> None:
    """Give 30 points, once."""
    if os.environ.get("BENCH_EMPTY"):
        return
    async with sessions() as session, session.begin():
        fresh = insert(Processed).values(order_id=order.order_id).on_conflict_do_nothing().returning(Processed.order_id)
        if (await session.execute(fresh)).first() is None:
            return
        session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))


if __name__ == "__main__":
    asyncio.run(app.run())
