"""Messages in Dramatiq's own envelopes; apart, since only those who measure install Dramatiq."""

import dramatiq
import pika
from benchmarks.stage.load import send
from dramatiq.brokers.rabbitmq import RabbitmqBroker


def publish_for_dramatiq(url: str, queue: str, bodies: list[dict[str, object]]) -> None:
    """Fill a fresh queue with Dramatiq's own envelopes, the body as keyword arguments."""
    broker = RabbitmqBroker(url=url)
    broker.declare_queue(queue, ensure=True)
    broker.close()
    messages = [
        dramatiq.Message(queue_name=queue, actor_name="award", args=(), kwargs=body, options={}).encode()
        for body in bodies
    ]
    send(pika.BlockingConnection(pika.URLParameters(url)), queue, messages)
