"""FastStream, async: the ORM handler in a hand-written transaction with a dedup row, 20 messages at once."""

import asyncio

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.stage.tables import OrderPaid, Points, Processed

CONCURRENCY = 20

engine = create_async_engine(told(POSTGRESQL), pool_size=CONCURRENCY, max_overflow=0)
sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(engine, expire_on_commit=False)
# Without a logger: its lines for every message would cost it a tenth of its throughput.
broker = RabbitBroker(told(RABBITMQ), default_channel=Channel(prefetch_count=CONCURRENCY), logger=None)
app = FastStream(broker, logger=None)


@broker.subscriber(RabbitQueue(told(QUEUE), durable=True, declare=False))
async def award(order: OrderPaid) -> None:
    """Give 30 points, once."""
    async with sessions() as session, session.begin():
        fresh = insert(Processed).values(order_id=order.order_id).on_conflict_do_nothing()
        if (await session.execute(fresh.returning(Processed.order_id))).first() is None:
            return
        session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))


if __name__ == "__main__":
    asyncio.run(app.run())
