"""Bare confluent-kafka: a commit for every 1,000 messages; nothing is read, or, with `read`, the key is taken and JSON parsed."""

import json
import sys
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaException

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import KAFKA, QUEUE, told

TOGETHER, COMMIT_EVERY = 500, 1000


def main(*, reads: bool) -> None:
    """Run until the process is ended."""
    url = urlsplit(told(KAFKA))
    login = {"sasl.mechanism": "PLAIN", "sasl.username": url.username, "sasl.password": url.password}
    consumer = Consumer(
        {
            "bootstrap.servers": url.netloc.rpartition("@")[2],
            "security.protocol": "SASL_PLAINTEXT",
            **login,
            "group.id": told(QUEUE),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # By default it fetches nothing for a second whenever enough is fetched ahead.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([told(QUEUE)])
    one_more = counter()
    uncommitted = 0
    while True:
        messages = consumer.consume(TOGETHER, 0.1)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            if reads:
                message.key().decode()
                json.loads(message.value())
            one_more()
        uncommitted += len(messages)
        if uncommitted >= COMMIT_EVERY or (uncommitted and not messages):
            consumer.commit(asynchronous=True)
            uncommitted = 0


if __name__ == "__main__":
    main(reads="read" in sys.argv[1:])
