"""Bare pika: nothing is read, nothing is done, one ack for every 100 messages."""

import pika

from benchmarks.peers.environment import QUEUE, RABBITMQ, told

ACK_EVERY = 100


class Counter:
    """Counts and acknowledges."""

    def __init__(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        self._tag = 0

    def on_message(
        self, _: object, method: pika.spec.Basic.Deliver, _properties: object, _body: bytes
    ) -> None:
        """Do nothing with one message."""
        self._tag = method.delivery_tag
        if self._tag % ACK_EVERY == 0:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge everything so far."""
        if self._tag:
            self._channel.basic_ack(self._tag, multiple=True)
            self._tag = 0


def main() -> None:
    """Run until the connection is closed or the process ended."""

    def opened(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=ready)

    def ready(channel: pika.channel.Channel) -> None:
        counter = Counter(channel)
        channel.basic_qos(prefetch_count=1000)
        channel.basic_consume(told(QUEUE), counter.on_message)

        def tail() -> None:
            counter.acknowledge()
            channel.connection._adapter_call_later(0.1, tail)

        tail()

    connection = pika.SelectConnection(pika.URLParameters(told(RABBITMQ)), on_open_callback=opened)
    connection.ioloop.start()


if __name__ == "__main__":
    main()
