"""By hand, as fast as we can: pika, one transaction for up to 200 messages, one ack for all.

Writes with Core inserts, or with `orm` as its argument by one mapped object per message.

An upper limit, not a consumer for production: no retry, no dead letter, no order, one bad message stops it.
"""

import json
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pika
from sqlalchemy import Connection, Engine, create_engine, insert, text
from sqlalchemy.orm import Session

from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.stage.tables import Points

BATCH = 200
_NEW = text(
    "INSERT INTO bench_processed (order_id) SELECT unnest(CAST(:ids AS text[])) ON CONFLICT DO NOTHING RETURNING order_id"
)


Write = Callable[[Connection, list[dict[str, object]]], object]


def apply(engine: Engine, bodies: list[bytes], write: Write) -> None:
    """Apply the messages in one transaction."""
    orders = {order["order_id"]: order for order in map(json.loads, bodies)}
    with engine.begin() as connection:
        new = connection.execute(_NEW, {"ids": sorted(orders)}).scalars().all()
        rows = [{"order_id": order, "user_id": orders[order]["user_id"], "points": 30} for order in new]
        if rows:
            write(connection, rows)


def by_core(connection: Connection, rows: Sequence[dict[str, object]]) -> None:
    """Write all rows with one statement."""
    connection.execute(insert(Points), rows)


def by_orm(connection: Connection, rows: Sequence[dict[str, object]]) -> None:
    """Write what a handler that is called per message adds to its session."""
    with Session(connection) as session:
        for row in rows:
            session.add(Points(**row))
        session.flush()


def main() -> None:
    """Run until told to stop."""
    write = by_orm if sys.argv[1:] == ["orm"] else by_core
    stopped = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    engine = create_engine(told(POSTGRESQL))
    connection = pika.BlockingConnection(pika.URLParameters(told(RABBITMQ)))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5 * BATCH)
    waiting: list[tuple[int, bytes]] = []
    channel.basic_consume(
        told(QUEUE), lambda _channel, method, _properties, body: waiting.append((method.delivery_tag, body))
    )
    while not stopped:
        connection.process_data_events(time_limit=0 if waiting else 0.05)
        if waiting:
            batch = waiting[:BATCH]
            del waiting[:BATCH]
            apply(engine, [body for _, body in batch], write)
            channel.basic_ack(batch[-1][0], multiple=True)
    connection.close()


if __name__ == "__main__":
    main()
