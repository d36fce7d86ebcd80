"""OnceMQ outside of handlers: `python -m … one | many | outbox COUNT`, all confirmed by the broker."""

import sys
import time

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import oncemq
from benchmarks.peers.environment import POSTGRESQL, told
from benchmarks.peers.publishing.orders import Order, asked, order, timed
from oncemq import AppPublisher
from oncemq.ledger.messages import outbox

FILE = "benchmarks/peers/oncemq/database.yaml"
TOPIC = "orders"
TOGETHER = 100
"""Messages in one transaction of `outbox`."""


def one(publisher: AppPublisher, orders: list[Order]) -> None:
    """Return from each call when its message is confirmed."""
    for each in orders:
        publisher.publish(TOPIC, each)


def many(publisher: AppPublisher, orders: list[Order]) -> None:
    """Return when all are confirmed."""
    publisher.publish_many(TOPIC, orders)


def in_transactions(publisher: AppPublisher, orders: list[Order]) -> None:
    """Store 100 messages in each transaction, and return when the outbox is empty."""
    engine = create_engine(told(POSTGRESQL))
    for start in range(0, len(orders), TOGETHER):
        with Session(engine) as session, session.begin():
            publisher.publish_many(TOPIC, orders[start : start + TOGETHER], session=session)
    with engine.connect() as connection:
        while outbox.depth(connection, "bench").messages:
            connection.rollback()
            time.sleep(0.01)
    engine.dispose()


def main() -> None:
    """Publish as asked, once connected."""
    orders = asked()
    with oncemq.open_publisher(FILE) as publisher:
        publisher.publish(TOPIC, order("first"))
        with timed(len(orders)):
            {"one": one, "many": many, "outbox": in_transactions}[sys.argv[1]](publisher, orders)


if __name__ == "__main__":
    main()
