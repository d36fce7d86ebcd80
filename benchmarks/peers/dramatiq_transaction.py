"""Dramatiq: the ORM handler in a hand-written transaction with a dedup row; 8 threads, prefetch as it comes."""

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from sqlalchemy import create_engine
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import sessionmaker

from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.stage.tables import OrderPaid, Points, Processed

THREADS = 8

sessions = sessionmaker(create_engine(told(POSTGRESQL), pool_size=THREADS), expire_on_commit=False)
dramatiq.set_broker(RabbitmqBroker(url=told(RABBITMQ)))


@dramatiq.actor(queue_name=told(QUEUE))
def award(**body: object) -> None:
    """Give 30 points, once."""
    order = OrderPaid.model_validate(body)
    with sessions.begin() as session:
        fresh = insert(Processed).values(order_id=order.order_id).on_conflict_do_nothing()
        if session.execute(fresh.returning(Processed.order_id)).first() is None:
            return
        session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))
