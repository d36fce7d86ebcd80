"""By hand, as most people write it: pika, the ORM handler in one transaction with its dedup row for each message."""

import json

import pika
from sqlalchemy import create_engine
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import sessionmaker

from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.stage.tables import OrderPaid, Points, Processed

sessions = sessionmaker(create_engine(told(POSTGRESQL)), expire_on_commit=False)


def on_message(
    channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _: object, body: bytes
) -> None:
    """Give 30 points, once."""
    order = OrderPaid.model_validate(json.loads(body))
    with sessions.begin() as session:
        fresh = insert(Processed).values(order_id=order.order_id).on_conflict_do_nothing()
        if session.execute(fresh.returning(Processed.order_id)).first() is not None:
            session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))
    channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    connection = pika.BlockingConnection(pika.URLParameters(told(RABBITMQ)))
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=20)
    consuming.basic_consume(told(QUEUE), on_message)
    consuming.start_consuming()
