"""The publisher of latency measurements: `python -m benchmarks.runs.pace URL QUEUE COUNT RATE FILE`; rate 0 is flat out."""

import json
import sys
import time
from pathlib import Path

import pika
from benchmarks.runs.latency import orders


def publish(url: str, queue: str, count: int, rate: float) -> list[float]:
    """Publish `count` messages, evenly spread; returns when each one left."""
    bodies = orders(queue, count)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    times, started = [], time.monotonic() + 0.1
    for number, body in enumerate(bodies):
        due = started + number / rate if rate else 0.0
        while (early := due - time.monotonic()) > 0:
            time.sleep(early)
        times.append(time.monotonic())
        channel.basic_publish("", queue, body, properties)
    connection.close()
    return times


if __name__ == "__main__":
    _, where, name, number_of, per_second, file = sys.argv
    Path(file).write_text(json.dumps(publish(where, name, int(number_of), float(per_second))))
