"""Latency: messages published at a steady rate; the time until the effect of each is committed and visible.

A trigger notifies us at the commit of each row, no matter who wrote it; publisher and listener share one clock.
"""

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg
from benchmarks.runs.drain import END
from benchmarks.runs.processes import Processes, running
from benchmarks.stage import load
from benchmarks.stage.load import Orders, Queue
from benchmarks.stage.servers import ROOT, Servers
from sqlalchemy import make_url, text

_CHANNEL = "bench_done"
_WARM_UP = 0.2
_SECONDS = 8.0
_TAIL = 20.0
_PROBE = 12_000
_TRIGGER = f"""
CREATE OR REPLACE FUNCTION bench_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('{_CHANNEL}', NEW.order_id); RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER bench_tell AFTER INSERT ON bench_points FOR EACH ROW EXECUTE FUNCTION bench_tell()
"""


@dataclass(frozen=True, slots=True)
class Load:
    """How much is published.

    Args:
        rate: messages per second; 0 = `share` of what OnceMQ can do while someone publishes.
        share: see above.
        own: `share` of what the consumer itself can do, not OnceMQ.
    """

    rate: float = 0.0
    share: float = 0.0
    own: bool = False


LOW = Load(rate=100.0)
HIGH = Load(share=0.8)
OWN_HIGH = Load(share=0.8, own=True)

_ONCEMQ = (sys.executable, "-m", "oncemq", "-f", "benchmarks/peers/oncemq/database.yaml", "run")
_capacities: dict[tuple[str, ...], float] = {}


def measure(command: Sequence[str], wanted: Load, servers: Servers, scale: float) -> dict[str, float]:
    """Return `p50_ms`, `p99_ms` and the `offered` rate."""
    rate = wanted.rate or wanted.share * _capacity(tuple(command) if wanted.own else _ONCEMQ, servers, scale)
    with servers.engine.begin() as connection:
        connection.execute(text(_TRIGGER))
    try:
        return {**_measure(command, rate, servers, scale), "offered": rate}
    finally:
        with servers.engine.begin() as connection:
            connection.execute(text("DROP TRIGGER bench_tell ON bench_points"))


def _capacity(command: tuple[str, ...], servers: Servers, scale: float) -> float:
    """Return what this consumer does, with the same trigger, while the publisher is at work; measured once in a run.

    A queue that is full from the start is drained mostly after its publisher has ended, who needs a core as well. So
    that rate is only where the measurement begins: what comes out while messages come in as fast is the capacity.
    """
    if command not in _capacities:
        with servers.engine.begin() as connection:
            connection.execute(text(_TRIGGER))
        drained = _drained(command, servers, max(3000, round(_PROBE * scale)))
        _capacities[command] = min(drained, _sustained(command, servers, drained, scale))
    return _capacities[command]


def _drained(command: tuple[str, ...], servers: Servers, count: int) -> float:
    """Return effects per second, of messages published as fast as it goes."""
    with _Scene(command, servers) as scene:
        scene.publish(count, rate=0.0)
        scene.listener.wait(count, _TAIL)
    times = sorted(scene.listener.seen.values())
    if len(times) != count:
        raise RuntimeError(f"{len(times)} effects instead of {count}:\n{scene.said}")
    first, last = round(_WARM_UP * count), round(END * count) - 1
    return (last - first) / max(0.001, times[last] - times[first])


def _sustained(command: tuple[str, ...], servers: Servers, rate: float, scale: float) -> float:
    """Return effects per second as long as messages are published at `rate`."""
    with _Scene(command, servers) as scene:
        sent = scene.publish(round(rate * max(3.0, _SECONDS * scale)), rate)
    begun, ended = sent[round(_WARM_UP * len(sent))], sent[-1]
    return sum(begun <= seen <= ended for seen in scene.listener.seen.values()) / (ended - begun)


def _measure(command: Sequence[str], rate: float, servers: Servers, scale: float) -> dict[str, float]:
    count = round(rate * max(3.0, _SECONDS * scale))
    with _Scene(command, servers) as scene:
        sent = scene.publish(count, rate)
        scene.listener.wait(count, _TAIL)
    seen = scene.listener.seen
    if len(seen) != count:
        raise RuntimeError(f"{len(seen)} effects instead of {count}:\n{scene.said}")
    numbers = range(round(_WARM_UP * count), count)
    waits = sorted(seen[f"{scene.name}-{number}"] - sent[number] for number in numbers)
    return {"p50_ms": _percentile(waits, 0.5) * 1e3, "p99_ms": _percentile(waits, 0.99) * 1e3}


def _percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


class _Scene:
    """A consumer that waits at an empty queue, a publisher, and a listener at the database."""

    def __init__(self, command: Sequence[str], servers: Servers) -> None:
        self.name = f"b{uuid4().hex[:8]}"
        self.said = ""
        self._servers = servers
        self._temporary = tempfile.TemporaryDirectory(prefix="oncemq-bench-")
        self._folder = Path(self._temporary.name)
        self._command = command
        self.listener = Listener(servers.postgresql)

    def __enter__(self) -> Self:
        self._servers.empty()
        load.publish(self._servers.rabbitmq, self.name, [])
        self._queue = Queue(self._servers.rabbitmq, self.name)
        environment = {
            "BENCH_QUEUE": self.name,
            "BENCH_RABBITMQ": self._servers.rabbitmq,
            "BENCH_POSTGRESQL": self._servers.postgresql,
            "BENCH_FOLDER": str(self._folder),
        }
        self._running = running(self._command, 1, environment, self._folder / "log")
        self._processes: Processes = self._running.__enter__()
        try:
            self._wait_for_consumer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_consumer(self) -> None:
        until = time.monotonic() + _TAIL
        while self._queue.look()[1] == 0:
            self._processes.insist()
            if time.monotonic() > until:
                raise RuntimeError(f"consumes nothing:\n{self._processes.tail()}")
            time.sleep(0.1)

    def publish(self, count: int, rate: float) -> list[float]:
        """Publish from a process of its own; returns the time of each message."""
        times = self._folder / "times"
        arguments = [self._servers.rabbitmq, self.name, str(count), str(rate), str(times)]
        subprocess.run([sys.executable, "-m", "benchmarks.runs.pace", *arguments], cwd=ROOT, check=True)
        return list(json.loads(times.read_text()))

    def __exit__(self, *error: object) -> None:
        self.said = self._processes.tail()
        self._running.__exit__(None, None, None)
        self.listener.stop()
        self._queue.remove()
        self._temporary.cleanup()


class Listener:
    """Notes when each order's effect became visible, in a thread of its own."""

    def __init__(self, postgresql: str) -> None:
        url = make_url(postgresql).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(f"LISTEN {_CHANNEL}")
        self.seen: dict[str, float] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._stopped:
            for notice in self._connection.notifies(timeout=0.2):
                self.seen.setdefault(notice.payload, time.monotonic())

    def wait(self, count: int, seconds: float) -> None:
        """Wait until so many effects have been seen, or without success."""
        until = time.monotonic() + seconds
        while len(self.seen) < count and time.monotonic() < until:
            time.sleep(0.05)

    def stop(self) -> None:
        """Listen no more."""
        self._stopped = True
        self._thread.join(5)
        self._connection.close()


def orders(name: str, count: int) -> list[bytes]:
    """Return the bodies, each order once."""
    plain = Orders(count, duplicates=0.0)
    bodies = {body["order_id"]: body for body in plain.bodies(name)}
    return [json.dumps(bodies[f"{name}-{number}"]).encode() for number in range(count)]
