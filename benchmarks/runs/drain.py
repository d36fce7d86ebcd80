"""Throughput: a peer's processes empty a queue that was filled before, and its effects are counted."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from benchmarks.peers import counting
from benchmarks.runs import kafka, rocketmq
from benchmarks.runs.adapter_topic import Topic
from benchmarks.runs.processes import Processes, running
from benchmarks.runs.told import free_address, told
from benchmarks.stage import load
from benchmarks.stage.load import Orders, Partitions, Queue
from benchmarks.stage.servers import Servers
from sqlalchemy import text

WARM_UP, END = 0.1, 0.98
"""The window that counts, as shares of the whole; it opens only when every process consumes."""

_LOOK_EVERY = 0.1
_GIVE_UP = 240.0
_TAIL = 30.0
_SETTLING = 0.5
"""Seconds in which a peer acknowledges its last messages before it is told to end."""

POINTS, SUM, FILE, QUEUE, COUNT, LEFT = "points", "sum", "file", "queue", "count", "left"
"""What is counted: rows of `bench_points`, the users' points, lines of a file, messages that left the queue, what the
peer says that it had, or messages that left the queue where rows of `bench_points` must come of them."""


@dataclass(frozen=True, slots=True)
class Drain:
    """One peer and what it is given.

    Args:
        command: its processes' command.
        orders: the messages.
        effect: what is counted.
        processes: how many; OnceMQ starts its own.
        environment: for its processes.
        consumers: how many consumers the queue has when all are there.
        publish: how messages are put into the queue.
        prepare: done to the database before.
        rocketmq: the messages come from RocketMQ, not from RabbitMQ.
        kafka: they come from Kafka.
        partitioned: the messages are in the partitions of a group.
        bare: a client that tells the broker now and then what it is done with, and ends without a word.
        figures: what its strategies measure about themselves, and tell at `BENCH_HTTP`.
    """

    command: Sequence[str]
    orders: Orders
    effect: str = POINTS
    processes: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    consumers: int = 1
    publish: load.Publish = load.publish
    prepare: Callable[[Servers], None] | None = None
    rocketmq: bool = False
    kafka: bool = False
    partitioned: bool = False
    bare: bool = False
    figures: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look saw: seconds since the epoch, effects so far, processor seconds, whether all consume."""

    at: float
    done: int
    cpu: float
    complete: bool


def measure(drain: Drain, servers: Servers, scale: float) -> dict[str, float]:
    """Return `rate` (messages per second), `cpu_us` per message, `deadlocks`, and the figures that are asked for.

    Raises:
        RuntimeError: the peer ended early, took too long, or its effects are wrong.
    """
    return _Measurement(drain, servers, scale).run()


def environment_of(servers: Servers, queue: str, folder: Path) -> dict[str, str]:
    """Return what a peer's processes are told: where the servers are, its queue, and a folder of its own."""
    return {
        "BENCH_QUEUE": queue,
        "BENCH_RABBITMQ": servers.rabbitmq,
        "BENCH_ROCKETMQ": servers.rocketmq or "",
        "BENCH_ROCKETMQ_AUTHORITY": (servers.rocketmq or "").partition("://")[2],
        "BENCH_ROCKETMQ_SERVER": (servers.rocketmq or "").rpartition("@")[2],
        "BENCH_ROCKETMQ_GRPC": servers.rocketmq_grpc or "",
        "BENCH_KAFKA": servers.kafka or "",
        "BENCH_POSTGRESQL": servers.postgresql,
        "BENCH_REDIS": servers.redis or "",
        "BENCH_HTTP": free_address(),
        "BENCH_FOLDER": str(folder),
    }


class _Measurement:
    def __init__(self, drain: Drain, servers: Servers, scale: float) -> None:
        self._drain = drain
        self._servers = servers
        messages = max(400, round(drain.orders.messages * scale))
        orders = drain.orders
        self._orders = Orders(messages, orders.duplicates, orders.poison, orders.users, orders.zipf)
        self._name = f"b{uuid4().hex[:8]}"
        counted = drain.effect in {POINTS, SUM}
        self._total = self._orders.healthy if counted else messages
        self._folder = Path()

    def run(self) -> dict[str, float]:
        servers, drain = self._servers, self._drain
        servers.empty()
        if drain.prepare is not None:
            drain.prepare(servers)
        queue = self._filled()
        deadlocks = self._deadlocks()
        try:
            with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
                self._folder = Path(folder)
                environment = environment_of(self._servers, self._name, self._folder) | drain.environment
                log = self._folder / "log"
                with running(drain.command, drain.processes, environment, log) as processes:
                    sights = self._watch(queue, processes)
                    figures = told(environment["BENCH_HTTP"], drain.figures) if drain.figures else {}
                self._check(queue)
        finally:
            queue.remove()
        return {**self._result(sights), "deadlocks": float(self._deadlocks() - deadlocks), **figures}

    def _filled(self) -> Queue | Topic | Partitions:
        bodies, servers = self._orders.bodies(self._name), self._servers
        if self._drain.partitioned:
            partitions = Partitions(servers.rabbitmq, self._name)
            partitions.fill(bodies)
            return partitions
        if self._drain.kafka:
            if servers.kafka is None:
                raise RuntimeError("ONCEMQ_TEST_KAFKA is not set: run `make services` first")
            kafka.publish(servers.kafka, self._name, bodies)
            return kafka.topic(servers.kafka, self._name)
        if not self._drain.rocketmq:
            self._drain.publish(servers.rabbitmq, self._name, bodies)
            return Queue(servers.rabbitmq, self._name)
        if servers.rocketmq is None:
            raise RuntimeError("ONCEMQ_TEST_ROCKETMQ is not set: run `make services` first")
        rocketmq.publish(servers.rocketmq, self._name, bodies)
        return rocketmq.topic(servers.rocketmq, self._name)

    def _watch(self, queue: Queue | Topic | Partitions, processes: Processes) -> list[Sight]:
        """Look again and again until all effects are there; at the queue only as long as that tells something.

        To ask how deep a topic of RocketMQ is takes two questions for each queue, which would cost it what is measured.
        """
        sights: list[Sight] = []
        complete, ready, by_queue = False, 0, self._drain.effect in {QUEUE, LEFT}
        until = time.monotonic() + _GIVE_UP
        while not sights or sights[-1].done < self._total:
            if time.monotonic() > until:
                done = sights[-1].done if sights else 0
                raise RuntimeError(
                    f"only {done} of {self._total} after {_GIVE_UP:.0f} s:\n{processes.tail()}"
                )
            processes.insist()
            time.sleep(_LOOK_EVERY)
            if by_queue or not complete:
                ready, consumers = queue.look()
                complete = consumers >= self._drain.consumers
            done = self._orders.messages - ready if by_queue else self._effects()
            sights.append(Sight(time.time(), done, processes.cpu(), complete))
        if self._orders.poison:
            self._wait_for_dead(queue)
        time.sleep(_SETTLING)
        return sights

    def _wait_for_dead(self, queue: Queue | Topic | Partitions) -> None:
        """Have the last dead letters arrive before the peer is told to end."""
        until = time.monotonic() + _TAIL
        while time.monotonic() < until and queue.dead() < self._poisonous():
            time.sleep(_LOOK_EVERY)

    def _poisonous(self) -> int:
        return sum(map(self._orders.poisonous, self._orders.numbers()))

    def _effects(self) -> int:
        if self._drain.effect in {POINTS, LEFT}:
            return self._servers.number("SELECT count(*) FROM bench_points")
        if self._drain.effect == SUM:
            return self._servers.number("SELECT sum(points) FROM bench_users") // 30
        if self._drain.effect == COUNT:
            return sum(int(path.read_bytes() or b"0") for path in self._folder.glob(counting.FILES))
        file = self._folder / "effects"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def _check(self, queue: Queue | Topic | Partitions) -> None:
        """Insist on one effect for each order, nothing left in the queue, and a dead letter for each poison."""
        if self._drain.bare:
            return
        ready, _ = queue.look()
        if ready:
            raise RuntimeError(f"{ready} messages were not acknowledged")
        if self._drain.effect in {POINTS, LEFT}:
            query = "SELECT count(*) - count(DISTINCT order_id) FROM bench_points"
            self._expect("orders with a second effect", self._servers.number(query), 0)
        if self._drain.effect == FILE:
            lines = (self._folder / "effects").read_text().split()
            self._expect("orders with an effect", len(set(lines)), self._orders.unique)
        if self._drain.effect not in {QUEUE, COUNT}:
            expected = self._orders.healthy if self._drain.effect == LEFT else self._total
            self._expect("effects", self._effects(), expected)
        if self._orders.poison:
            self._expect("dead letters", queue.dead(), self._poisonous())

    def _expect(self, what: str, found: int, expected: int) -> None:
        if found != expected:
            raise RuntimeError(f"{found} {what} instead of {expected}")

    def _deadlocks(self) -> int:
        return self._servers.number(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )

    def _result(self, sights: list[Sight]) -> dict[str, float]:
        opened = [sight for sight in sights if sight.complete and sight.done >= WARM_UP * self._total]
        inside = [sight for sight in opened if sight.done <= END * self._total]
        if not opened or opened[0].done > 0.7 * self._total:
            raise RuntimeError("the queue was empty before the measurement began: give it more messages")
        first, last = opened[0], inside[-1] if len(inside) > 1 else opened[-1]
        per_effect = self._orders.messages / self._total if not self._orders.poison else 1.0
        rate = self._exact(first) if self._drain.effect == POINTS else _rate(first, last)
        done = max(1, last.done - first.done) * per_effect
        return {"rate": rate * per_effect, "cpu_us": (last.cpu - first.cpu) / done * 1e6}

    def _exact(self, first: Sight) -> float:
        """Return the rate from the times that the database noted, which no polling blurs."""
        query = text(
            "SELECT count(*), extract(epoch FROM max(at)) FROM (SELECT at, row_number() OVER (ORDER BY at) AS place"
            " FROM bench_points) AS rows WHERE at > to_timestamp(:first) AND place <= :last"
        )
        with self._servers.engine.connect() as connection:
            bounds = {"first": first.at, "last": round(END * self._total)}
            count, end = connection.execute(query, bounds).one()
        return float(count) / max(0.001, float(end or 0) - first.at)


def _rate(first: Sight, last: Sight) -> float:
    return (last.done - first.done) / max(0.001, last.at - first.at)
