"""How much memory a driver of RocketMQ takes while many messages are sent and received in one process."""

import gc
import json
import os
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic

from oncemq.adapter import Adapter, Confirmed, Subscription
from oncemq.message.envelope import Delivery, OutgoingMessage

MESSAGES = 200_000 if "ONCEMQ_STORM_MESSAGES" in os.environ else 20_000
BATCH = 500
WARM = 10_000
"""Messages after which pools and buffers have the size that they keep."""
GROWTH = 8.0
"""Megabytes: forty bytes for each message of the long form."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Tray:
    """A sink from which deliveries are taken by hand, and of which nothing is kept."""

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()

    def deliver(self, delivery: Delivery, _consumer: str) -> None:
        self.deliveries.append(delivery)

    def lost(self, _consumer: str, _generation: int, *, alone: bool = False) -> None:
        """Do nothing: what was lost comes again."""

    def take(self) -> list[Delivery]:
        return [self.deliveries.popleft() for _ in range(len(self.deliveries))]


def stay_flat(adapter: Adapter, name: str) -> None:
    """Send and settle all messages, and insist that at the end no more memory is resident than when all was warm."""
    try:
        early, late = _send_and_settle(adapter, Subscription("c", name, name, {"queues": 4}), MESSAGES)
    finally:
        adapter.close(grace=timedelta(seconds=5))
    with Path(os.environ.get("ONCEMQ_STORM_REPORT", os.devnull)).open("a") as file:
        row = {"test": f"memory {type(adapter).__name__}", "messages": MESSAGES, "early": early, "late": late}
        file.write(json.dumps(row) + "\n")
    assert late - early < GROWTH, f"{early:.1f} MB when warm, {late:.1f} MB after {MESSAGES} messages"


def _send_and_settle(adapter: Adapter, subscription: Subscription, count: int) -> tuple[float, float]:
    """Return the megabytes when warm and at the end."""
    tray, settled, early = _Tray(), 0, 0.0
    adapter.open([subscription], tray)
    for number in range(0, count, BATCH):
        answers = adapter.publish(subscription.topic, subscription.options, list(_messages(number)))
        assert all(isinstance(one, Confirmed) for one in answers), answers
        settled = _settle(adapter, tray, settled, number - BATCH)
        if number == WARM:
            early = megabytes()
    _settle(adapter, tray, settled, count)
    return early, megabytes()


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


def megabytes() -> float:
    """Return the resident memory of this process and of those that it has started."""
    gc.collect()
    return sum(_resident(pid) for pid in (os.getpid(), *_children())) * _PAGE / 1e6


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _children() -> Iterator[int]:
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
