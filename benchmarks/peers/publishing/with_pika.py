"""pika alone, every message confirmed: `python -m … one | many COUNT`, one by one or 1,000 in flight."""

import json
import sys
import time
from collections.abc import Iterator
from itertools import takewhile
from uuid import uuid4

import pika

from benchmarks.peers.environment import QUEUE, RABBITMQ, told
from benchmarks.peers.publishing.orders import Order, asked, timed

WINDOW = 1000


def properties() -> pika.BasicProperties:
    """Return what a careful producer sends with each message."""
    return pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=uuid4().hex,
        timestamp=int(time.time()),
    )


def one(orders: list[Order]) -> None:
    """Wait for each confirmation before the next message."""
    connection = pika.BlockingConnection(pika.URLParameters(told(RABBITMQ)))
    channel = connection.channel()
    channel.confirm_delivery()
    queue = told(QUEUE)
    with timed(len(orders)):
        for order in orders:
            channel.basic_publish("", queue, json.dumps(order).encode(), properties(), mandatory=True)
    connection.close()


class Pipeline:
    """Keeps 1,000 messages in flight on pika's own loop.

    Args:
        orders: to publish.
    """

    def __init__(self, orders: list[Order]) -> None:
        self._orders: Iterator[Order] = iter(orders)
        self._messages = len(orders)
        self._number = 0
        self._unconfirmed: dict[int, Order] = {}
        self._queue = told(QUEUE)
        self._connection = pika.SelectConnection(
            pika.URLParameters(told(RABBITMQ)), on_open_callback=self._opened
        )

    def run(self) -> None:
        """Return when every message is confirmed."""
        self._connection.ioloop.start()

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._clock = timed(self._messages)
        self._clock.__enter__()
        self._fill()

    def _fill(self) -> None:
        while len(self._unconfirmed) < WINDOW:
            order = next(self._orders, None)
            if order is None:
                return
            body = json.dumps(order).encode()
            self._channel.basic_publish("", self._queue, body, properties(), mandatory=True)
            self._number += 1
            self._unconfirmed[self._number] = order

    def _answered(self, frame: pika.frame.Method) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            raise TypeError("the broker refused a message")
        confirmed = [method.delivery_tag]
        if method.multiple:
            confirmed = list(takewhile(method.delivery_tag.__ge__, self._unconfirmed))
        for number in confirmed:
            del self._unconfirmed[number]
        self._fill()
        if not self._unconfirmed:
            self._clock.__exit__(None, None, None)
            self._connection.ioloop.stop()


if __name__ == "__main__":
    one(asked()) if sys.argv[1] == "one" else Pipeline(asked()).run()
