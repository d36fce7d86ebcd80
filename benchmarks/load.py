"""The messages of a measurement: orders, a share of them sent twice, published with confirmation before it starts."""

import json
import random

import pika


def publish(url: str, queue: str, messages: int, *, duplicates: float) -> int:
    """Fill a fresh durable queue; returns how many different orders there are."""
    draw = random.Random(42)
    unique = round(messages / (1 + duplicates))
    numbers = list(range(unique)) + draw.sample(range(unique), messages - unique)
    draw.shuffle(numbers)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    for place, number in enumerate(numbers, 1):
        body = {"order_id": f"{queue}-{number}", "user_id": f"user-{number % 1000}", "amount": 12.5}
        channel.basic_publish(
            "",
            queue,
            json.dumps(body).encode(),
            pika.BasicProperties(content_type="application/json", delivery_mode=2),
        )
        if place % 1000 == 0:
            channel.tx_commit()
    channel.tx_commit()
    connection.close()
    return unique


def waiting(url: str, queue: str) -> int:
    """Return how many messages are ready in the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    finally:
        connection.close()


def delete(url: str, queue: str) -> None:
    """Remove the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_delete(queue)
    connection.close()
