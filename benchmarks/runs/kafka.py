"""Kafka's part of a measurement: a topic that is filled before, and what of it is left for the group.

Messages are what a plain producer sends: a key, and a JSON body.
"""

import json
from datetime import timedelta

from benchmarks.runs.adapter_topic import Topic, send_all

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq_adapters.kafka import KafkaAdapter
from oncemq_adapters.kafka.records import Record

PARTITIONS = 8


def publish(url: str, name: str, bodies: list[dict[str, object]]) -> None:
    """Fill a fresh topic with JSON bodies; topic and group are called alike."""
    adapter = _adapter(url)
    try:
        adapter.prepare([_subscription(name)])
        send_all(adapter._send, [_plain(name, body) for body in bodies])
    finally:
        adapter.close(grace=timedelta(seconds=5))


def topic(url: str, name: str) -> Topic:
    """Return what looks at one topic and its group."""
    adapter = _adapter(url)
    adapter.prepare(())
    administration = adapter._opened()[0]
    return Topic(adapter, _subscription(name), lambda: len(administration.group(name).members))


def _plain(name: str, body: dict[str, object]) -> Record:
    return Record(name, str(body["order_id"]).encode(), json.dumps(body).encode(), [])


def _adapter(url: str) -> KafkaAdapter:
    return KafkaAdapter.build(url, {"publish_timeout": "60s"}, AdapterScope("bench", "kafka", SystemClock()))


def _subscription(name: str) -> Subscription:
    return Subscription("bench", name, name, {"partitions": PARTITIONS})
