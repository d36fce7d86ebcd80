"""FastStream with a sync handler in its threads: the same hand-written transaction, 20 messages at once."""

import asyncio

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from sqlalchemy import create_engine
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import sessionmaker

from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.stage.tables import OrderPaid, Points, Processed

CONCURRENCY = 20

sessions = sessionmaker(create_engine(told(POSTGRESQL), pool_size=CONCURRENCY), expire_on_commit=False)
broker = RabbitBroker(told(RABBITMQ), default_channel=Channel(prefetch_count=CONCURRENCY), logger=None)
app = FastStream(broker, logger=None)


@broker.subscriber(RabbitQueue(told(QUEUE), durable=True, declare=False))
def award(order: OrderPaid) -> None:
    """Give 30 points, once."""
    with sessions.begin() as session:
        fresh = insert(Processed).values(order_id=order.order_id).on_conflict_do_nothing()
        if session.execute(fresh.returning(Processed.order_id)).first() is None:
            return
        session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))


if __name__ == "__main__":
    asyncio.run(app.run())
