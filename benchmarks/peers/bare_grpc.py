"""Bare rocketmq-python-client: 8 threads with a SimpleConsumer each, nothing is read, an ack for every message."""

import logging
import os
import signal
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import QUEUE, ROCKETMQ_GRPC, told

THREADS = 8
AT_ONCE, INVISIBLE = 32, 60


def consume(consumer: Any, one_more: Any) -> None:
    """Take and acknowledge until the process ends."""
    while True:
        try:
            messages = consumer.receive(AT_ONCE, INVISIBLE)
        except Exception:  # the first question may come too early for the proxy
            logging.getLogger("bench").exception("receive")
            continue
        for message in messages or ():
            consumer.ack(message)
            one_more()


def main() -> None:
    """Run until the process is ended."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    url = urlsplit(told(ROCKETMQ_GRPC))
    login = Credentials(url.username, url.password)
    one_more = counter()
    for _ in range(THREADS):
        configuration = ClientConfiguration(f"{url.hostname}:{url.port}", login)
        consumer = SimpleConsumer(configuration, told(QUEUE), {told(QUEUE): FilterExpression("*")}, 5)
        consumer.startup()
        Thread(target=consume, args=(consumer, one_more), daemon=True).start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
