"""How much memory a driver of RocketMQ takes while many messages are sent and received in one process."""

import gc
import json
import os
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from typing import NamedTuple

from oncemq.contracts.adapter import Adapter, Confirmed, Subscription
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.adapter_suite.bench import Bench
from oncemq_adapters.rocketmq_client.protocol import LARGEST_BODY, MOST_UNPACKED
from support.brokers.rocketmq_queues import queue_console

_LONG = "ONCEMQ_STORM_MESSAGES" in os.environ
BATCH = 500
WARM = 100_000 if _LONG else 10_000
"""Messages after which pools and buffers have the size that they keep, or nearly in the short form.

With librocketmq a process takes 68 MB after 10,000 messages, 73 after 100,000, and 76 after 300,000 and after 800,000.
"""
MESSAGES = WARM + (200_000 if _LONG else 10_000)
GROWTH = 8.0
"""Megabytes: forty bytes for each message of the long form; the short one finds by it what keeps whole messages only."""
KEPT = 0.2
"""Python objects of this process for each message; their number hardly varies, so the short form finds one a message."""
_COMPRESSED = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Memory(NamedTuple):
    """What is in memory.

    Args:
        megabytes: resident, of this process and of those that it has started.
        objects: of Python, in this process.
    """

    megabytes: float
    objects: int


class _Tray:
    """A sink from which deliveries are taken by hand, and of which nothing is kept."""

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()

    def deliver(self, deliveries: Sequence[Delivery], _consumer: str) -> None:
        self.deliveries += deliveries

    def lost(self, _consumer: str, _generation: int, *, alone: bool = False) -> None:
        """Do nothing: what was lost comes again."""

    def take(self) -> list[Delivery]:
        return [self.deliveries.popleft() for _ in range(len(self.deliveries))]


def stay_flat(adapter: Adapter, name: str, most: float = KEPT) -> None:
    """Send and settle all messages, and insist that at the end there is no more in memory than when all was warm.

    Args:
        adapter: not open yet; is closed.
        name: of a topic and a group.
        most: objects that may be kept for each message, where some are for a while.
    """
    try:
        early, late = _send_and_settle(adapter, Subscription("c", name, name, {"queues": 4}), MESSAGES)
    finally:
        adapter.close(grace=timedelta(seconds=5))
    kept = (late.objects - early.objects) / (MESSAGES - WARM)
    with Path(os.environ.get("ONCEMQ_STORM_REPORT", os.devnull)).open("a") as file:
        row = {"test": f"memory {type(adapter).__name__}", "messages": MESSAGES, "kept": round(kept, 3)}
        file.write(json.dumps(row | {"early": early.megabytes, "late": late.megabytes}) + "\n")
    assert late.megabytes - early.megabytes < GROWTH, f"{early} when warm, {late} after {MESSAGES} messages"
    assert kept < most, f"{early} when warm, {late} after {MESSAGES} messages"


def _send_and_settle(adapter: Adapter, subscription: Subscription, count: int) -> tuple[Memory, Memory]:
    """Return what there is in memory when all is warm, and at the end."""
    tray, settled, early = _Tray(), 0, Memory(0.0, 0)
    adapter.open([subscription], tray)
    for number in range(0, count, BATCH):
        answers = adapter.publish(subscription.topic, subscription.options, list(_messages(number)))
        assert all(isinstance(answer, Confirmed) for answer in answers), answers
        settled = _settle(adapter, tray, settled, number - BATCH)
        if number == WARM:
            # As at the end, nothing is in flight.
            settled = _settle(adapter, tray, settled, number + BATCH)
            early = memory()
    _settle(adapter, tray, settled, count)
    return early, memory()


def _messages(first: int) -> Iterator[OutgoingMessage]:
    for number in range(first, first + BATCH):
        yield OutgoingMessage(b"x" * 300, {"source": "till"}, key=f"key-{number % 1000}")


def _settle(adapter: Adapter, tray: _Tray, settled: int, least: int) -> int:
    """Settle what has come, until so many are settled in all; returns how many are."""
    deadline, pause = monotonic() + 60, Event()
    while True:
        deliveries = tray.take()
        settled += len(deliveries) - len(adapter.acknowledge(deliveries) if deliveries else ())
        if settled >= least:
            return settled
        assert monotonic() < deadline, f"{settled} of {least} messages came"
        pause.wait(0.002)


def memory() -> Memory:
    """Return what there is now."""
    gc.collect()
    resident = sum(_resident(pid) for pid in (os.getpid(), *_children())) * _PAGE / 1e6
    return Memory(resident, sys.getallocatedblocks())


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _children() -> Iterator[int]:
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def assert_unpacked_bytes_are_counted(
    bench: Bench, url: str, count: int = 24, most: int = MOST_UNPACKED + LARGEST_BODY
) -> None:
    """Publish more than a consumer may hold; each comes once, and never more at a time than that.

    Args:
        bench: of the driver.
        url: of the name server.
        count: of messages, each as large as a body may be.
        most: bytes that may be unsettled at a time.
    """
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    body = bytes(LARGEST_BODY - 1)
    with queue_console(url) as console:
        for number in range(count):
            packed = zlib.compress(body + bytes([number]))
            console.put_raw(f"{bench.harness.options['namespace']}%{topic.name}", 0, packed, _COMPRESSED)
    member = bench.open(subscription)
    numbers: list[int] = []
    came = 0
    while len(numbers) < count:
        fresh = member.sink.wait_for(came + 1, bench.harness.patience)[came:]
        came += len(fresh)
        assert (came - len(numbers)) * LARGEST_BODY <= most
        for delivery in fresh:
            assert not member.adapter.acknowledge([delivery])
            numbers.append(delivery.message.body[-1])
    assert sorted(numbers) == list(range(count))
