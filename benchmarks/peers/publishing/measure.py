"""Rates of publishing with confirmation: from a script, through the outbox, and from the requests of a web service."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from benchmarks.peers.publishing.orders import order
from benchmarks.runs.drain import environment_of
from benchmarks.runs.processes import running
from benchmarks.runs.told import free_address
from benchmarks.stage.load import Queue, publish
from benchmarks.stage.servers import ROOT, Servers

Measure = Callable[[Servers, float], dict[str, float]]

CLIENTS = 32
"""Connections of the web service's client, each with one request at a time."""

_MODULES = "benchmarks.peers.publishing"
_PATIENCE = 120.0


def script(peer: str, how: str, messages: int) -> Measure:
    """Return the measurement of a peer's program, which prints its own rate once connected."""

    def measure(servers: Servers, scale: float) -> dict[str, float]:
        count = max(200, round(messages * scale))
        with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
            queue, environment = _queue(servers, Path(folder))
            command = [sys.executable, "-m", f"{_MODULES}.{peer}", how, str(count)]
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env={**os.environ, **environment},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    raise RuntimeError(f"{peer} {how} failed:\n{done.stderr[-3000:]}")
                _insist(queue, count)
            finally:
                queue.remove()
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return measure


def web(peer: str, requests: int) -> Measure:
    """Return the measurement of a web service in one process: `rate` and `p99_ms` of its requests."""

    def measure(servers: Servers, scale: float) -> dict[str, float]:
        count = max(200, round(requests * scale))
        with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
            queue, environment = _queue(servers, Path(folder))
            port = free_address().rpartition(":")[2]
            command = [sys.executable, "-m", f"{_MODULES}.web", peer, port]
            try:
                with running(command, 1, environment, Path(folder) / "log") as processes:
                    _until_ready(int(port), processes.insist)
                    asyncio.run(_load(int(port), CLIENTS * 2))
                    began = time.perf_counter()
                    took = sorted(asyncio.run(_load(int(port), count)))
                    lasted = time.perf_counter() - began
                    _insist(queue, count + CLIENTS * 2)
            finally:
                queue.remove()
        return {"rate": count / lasted, "p99_ms": took[int(len(took) * 0.99)] * 1000}

    return measure


def _queue(servers: Servers, folder: Path) -> tuple[Queue, dict[str, str]]:
    servers.empty()
    name = f"b{uuid4().hex[:8]}"
    publish(servers.rabbitmq, name, [])
    return Queue(servers.rabbitmq, name), environment_of(servers, name, folder)


def _insist(queue: Queue, messages: int) -> None:
    """Raise RuntimeError if the queue does not get every message; some peers send one more to connect."""
    until = time.monotonic() + _PATIENCE
    while (found := queue.look()[0]) < messages:
        if time.monotonic() > until:
            raise RuntimeError(f"{found} of {messages} messages are in the queue")
        time.sleep(0.05)


def _until_ready(port: int, insist: Callable[[], None]) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        insist()
        try:
            asyncio.run(_load(port, 1))
        except OSError:
            if time.monotonic() > until:
                raise RuntimeError("the web service does not answer") from None
            time.sleep(0.05)
        else:
            return


async def _load(port: int, requests: int) -> list[float]:
    """Return the seconds of each request."""
    left = iter(range(requests))
    took: list[float] = []
    await asyncio.gather(*(_client(port, left, took) for _ in range(min(CLIENTS, requests))))
    return took


async def _client(port: int, left: Iterator[int], took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in left:
        body = json.dumps(order(number)).encode()
        head = f"POST /orders HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().splitlines() if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        if b" 200 " not in answer.splitlines()[0]:
            raise RuntimeError(f"the web service answered {answer.splitlines()[0].decode()}")
        took.append(time.perf_counter() - began)
    writer.close()
