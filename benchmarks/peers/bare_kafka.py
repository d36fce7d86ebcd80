"""Bare confluent-kafka: a commit for every 1,000 messages; nothing is read; with `read` the key is taken and JSON parsed; with
`poll` so, too, one message a call, and given to a function.
"""

import json
import sys
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaException

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import KAFKA, QUEUE, told

TOGETHER, COMMIT_EVERY = 500, 1000


def handle(_key: str, _order: dict[str, Any]) -> None:
    """Do nothing, as the empty handler."""


def main(*, reads: bool, polls: bool) -> None:
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
        if polls:
            found = consumer.poll(0.1)
            messages = [] if found is None else [found]
        else:
            messages = consumer.consume(TOGETHER, 0.1)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            if polls:
                handle(message.key().decode(), json.loads(message.value()))
            elif reads:
                message.key().decode()
                json.loads(message.value())
            one_more()
        uncommitted += len(messages)
        if uncommitted >= COMMIT_EVERY or (uncommitted and not messages):
            consumer.commit(asynchronous=True)
            uncommitted = 0


if __name__ == "__main__":
    main(reads="read" in sys.argv[1:], polls="poll" in sys.argv[1:])
