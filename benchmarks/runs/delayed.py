"""How late messages leave that were published for later: `python -m benchmarks.runs.delayed --database URL --broker URL`.

The messages are stored first and become due one after the other, evenly, from `lead` on. A relay as in any process of an app
sends them. Shown are the time between a message's moment and its broker's confirmation, and that none left early or never.
"""

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from oncemq import App
from oncemq.contracts.adapter import Adapter, Confirmed, Refused
from oncemq.contracts.unit import Outgoing
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.publishers.caller_outbox import CallerOutbox
from oncemq.ledger import schema
from oncemq.ledger.messages import delayed
from oncemq.ledger.messages.outbox import Claim
from oncemq.message.envelope import OutgoingMessage

TOPIC = "due"
PATIENCE = 120.0
CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Lateness:
    """What was measured.

    Args:
        sent: how many messages were confirmed.
        early: how many of them left before their moment.
        average: seconds after the moment.
        p99: of 99 in 100, at most.
    """

    sent: int
    early: int
    average: float
    p99: float


class _Timed:
    """Notes when each message is handed to the broker, and when it is confirmed."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.begun: dict[str, datetime] = {}
        self.confirmed: dict[str, datetime] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish, and note the times."""
        begun = datetime.now(UTC)
        answers = self._adapter.publish(topic, options, messages)
        now = datetime.now(UTC)
        for message, answer in zip(messages, answers, strict=True):
            if isinstance(answer, Confirmed) and message.message_id is not None:
                self.begun[message.message_id] = begun
                self.confirmed[message.message_id] = now
        return answers


def measure(database: str, broker: str, count: int, spread: float, lead: float) -> Lateness:
    """Return how late `count` messages leave that become due over `spread` seconds, the first one in `lead` seconds."""
    name = f"late-{uuid4().hex[:8]}"
    app = App(name, brokers={"main": broker}, database=database)
    topic = f"{TOPIC}-{name}"
    app.topic(topic, key="body.id", strategies=["unique_key"])

    @app.consumer(topic=topic, name="sink")
    def sink(body: dict[str, Any]) -> None:
        del body

    plan = app.plan()
    for engine in plan.engines:
        schema.create(engine)
    adapter = plan.adapters["main"]
    adapter.prepare([consumer.subscription for consumer in plan.consumers])
    timed = _Timed(adapter)
    plan = replace(plan, adapters={"main": timed})  # type: ignore[dict-item]
    publishing = Publishing(plan.adapters, plan.topics, frozenset({"main"}))
    publishing.open()
    due = _store(plan, topic, count, spread, lead)
    outbox = CallerOutbox(plan, publishing, str)
    until = time.monotonic() + lead + spread + PATIENCE
    while len(timed.confirmed) < count and time.monotonic() < until:
        time.sleep(0.1)
    outbox.close(timedelta(seconds=10))
    adapter.close(grace=timedelta(seconds=5))
    late = sorted((timed.confirmed[name] - due[name]).total_seconds() for name in timed.confirmed)
    early = sum(begun < due[name] for name, begun in timed.begun.items())
    if not late:
        return Lateness(0, 0, float("inf"), float("inf"))
    return Lateness(len(late), early, statistics.fmean(late), late[len(late) * 99 // 100])


def _store(plan: Any, topic: str, count: int, spread: float, lead: float) -> dict[str, datetime]:
    now = plan.clock.now()
    first = now + timedelta(seconds=lead)
    due = {f"m{number}": first + timedelta(seconds=spread * number / count) for number in range(count)}
    names = list(due)
    for at in range(0, count, CHUNK):
        outgoing = [
            Outgoing(topic, OutgoingMessage(b'{"id": 1}', {}, name, name, due_at=due[name]), None)
            for name in names[at : at + CHUNK]
        ]
        with plan.engine.begin() as connection:
            delayed.keep(connection, Claim(plan.name, "", now), f"{plan.name}.bench", outgoing, now)
    return due


def main() -> None:
    """Measure once and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--spread", type=float, default=100.0, help="seconds over which they become due")
    parser.add_argument("--lead", type=float, default=60.0, help="seconds until the first one is due")
    given = parser.parse_args()
    found = measure(given.database, given.broker, given.count, given.spread, given.lead)
    print(
        f"{found.sent:,} of {given.count:,} sent, {found.early} early, {found.average:.3f} s late on average, p99 {found.p99:.3f} s"
    )


if __name__ == "__main__":
    main()
