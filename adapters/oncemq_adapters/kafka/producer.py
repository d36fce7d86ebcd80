"""Publishes records and waits for their confirmation; one idempotent producer for all threads."""

from collections.abc import Sequence
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka import Producer as Client

from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq_adapters.kafka.address import Address
from oncemq_adapters.kafka.errors import surfaced, translated
from oncemq_adapters.kafka.records import Record

_GLANCE = 0.1
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


class _Batch:
    """The answers of one call, completed by the polling thread."""

    def __init__(self, count: int) -> None:
        self.errors: list[KafkaError | None] = [None] * count
        self.done = Event()
        self._left = count
        self._lock = Lock()

    def answered(self, number: int, error: KafkaError | None, _: Any) -> None:
        self.errors[number] = error
        self.leave()

    def leave(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self.done.set()


class Producer:
    """Sends records; each call returns when every one of its records is confirmed or has failed.

    Args:
        address: of the cluster.
        name: what its operators see.
    """

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._name = name
        self._lock = Lock()
        self._client: Any = None
        self._closing = Event()
        self._failed = Event()

    def send(self, records: Sequence[Record]) -> list[BrokerError | None]:
        """Publish these; returns for each why it is not confirmed, or None.

        A broker refuses a whole batch for one record that is too large: then each goes again, alone.
        """
        errors = self._send(records)
        if len(records) > 1:
            for number, record in enumerate(records):
                if isinstance(found := errors[number], KafkaError) and found.code() in _TOO_LARGE:
                    errors[number] = self._send([record])[0]
        return [
            translated(error, f"publishing to {record.topic!r}", self._address.shown)
            if isinstance(error, KafkaError)
            else error
            for record, error in zip(records, errors, strict=True)
        ]

    def close(self, seconds: float) -> None:
        """Wait for what is on its way, and disconnect."""
        with self._lock:
            client, self._client = self._client, None
            self._closing.set()
        if client is not None:
            client.flush(max(0.1, seconds))
            client.purge()
            client.poll(0)

    def _send(self, records: Sequence[Record]) -> list[BrokerError | KafkaError | None]:
        if not records:
            return []
        client = self._opened()
        batch = _Batch(len(records))
        failed: dict[int, BrokerError] = {}
        for number, record in enumerate(records):
            try:
                self._produce(client, record, partial(batch.answered, number))
            except Exception as error:
                failed[number] = surfaced(error, f"publishing to {record.topic!r}", self._address.shown)
                batch.leave()
        # librdkafka gives up by itself; twice its time means that nothing polls any more.
        patience = 2 * self._address.publish_timeout.total_seconds() + 5
        answered = batch.done.wait(patience)
        return [
            failed.get(number) or (error if answered else _silent(self._address))
            for number, error in enumerate(batch.errors)
        ]

    def _produce(self, client: Any, record: Record, answer: Any) -> None:
        place = {} if record.partition is None else {"partition": record.partition}
        end = monotonic() + self._address.publish_timeout.total_seconds()
        while True:
            try:
                client.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    on_delivery=answer,
                    **place,
                )
            except BufferError:
                if monotonic() > end:
                    raise
                client.poll(_GLANCE)
            else:
                return

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None or self._failed.is_set():
                self._failed.clear()
                if self._client is not None:
                    # What it had not sent has failed; its thread ends, and the client with it.
                    self._client.purge()
                    self._client.poll(0)
                    self._closing.set()
                self._closing = Event()
                self._client = Client({**self._address.producer(self._name), "error_cb": self._error})
                Thread(
                    target=self._poll, args=(self._client, self._closing), name=self._name, daemon=True
                ).start()
            return self._client

    def _poll(self, client: Any, closing: Event) -> None:
        while not closing.is_set():
            client.poll(_GLANCE)

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failed.set()


def _silent(address: Address) -> BrokerError:
    return BrokerUnavailable(f"Kafka {address.shown} did not confirm in time")
