"""One measurement: a peer in a process of its own empties a full queue, and its effects are counted."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, text

from benchmarks import load

ROOT = Path(__file__).parents[1]
_LOOK_EVERY = 0.05
_GIVE_UP = 300.0
_START, _END = 0.05, 0.98


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the table: a command, and whether it writes effects or only empties the queue."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    effects: bool = True


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are."""

    rabbitmq: str
    postgresql: str


def measure(peer: Peer, servers: Servers, engine: Engine, messages: int) -> float:
    """Return the peer's messages per second between 5 % and 98 % of the queue.

    Raises:
        RuntimeError: the peer ended early, took too long, or its effects are wrong.
    """
    queue = f"bench-{uuid4().hex[:8]}"
    unique = load.publish(servers.rabbitmq, queue, messages, duplicates=0.1)
    log = ROOT / ".services" / f"{queue}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            peer.command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **peer.environment,
                "PYTHONPATH": str(ROOT),
                "BENCH_QUEUE": queue,
                "BENCH_RABBITMQ": servers.rabbitmq,
                "BENCH_POSTGRESQL": servers.postgresql,
            },
        )
    try:
        return _rate(peer, servers, engine, queue, messages, unique, process, log)
    finally:
        process.terminate()
        process.wait(60)
        load.delete(servers.rabbitmq, queue)


def _rate(
    peer: Peer,
    servers: Servers,
    engine: Engine,
    queue: str,
    messages: int,
    unique: int,
    process: "subprocess.Popen[bytes]",
    log: Path,
) -> float:
    total = unique if peer.effects else messages
    until = time.monotonic() + _GIVE_UP
    first: tuple[float, int] | None = None
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{peer.name} ended early:\n{log.read_text()[-3000:]}")
        time.sleep(_LOOK_EVERY)
        now = time.monotonic()
        done = _effects(engine, queue) if peer.effects else messages - load.waiting(servers.rabbitmq, queue)
        if first is None and done >= _START * total:
            first = (now, done)
        if first is not None and done >= _END * total:
            rate = (done - first[1]) / (now - first[0]) * messages / total if now > first[0] else 0.0
            _check(peer, engine, queue, unique)
            return rate
    raise RuntimeError(f"{peer.name} took longer than {_GIVE_UP:.0f} s:\n{log.read_text()[-3000:]}")


def _effects(engine: Engine, queue: str) -> int:
    with engine.connect() as connection:
        count = text("SELECT count(*) FROM bench_points WHERE order_id LIKE :mine")
        return int(connection.execute(count, {"mine": f"{queue}-%"}).scalar_one())


def _check(peer: Peer, engine: Engine, queue: str, unique: int) -> None:
    """Wait for the tail, then insist that every order has exactly one effect."""
    if not peer.effects:
        return
    until = time.monotonic() + 30
    while time.monotonic() < until and _effects(engine, queue) < unique:
        time.sleep(_LOOK_EVERY)
    found = _effects(engine, queue)
    if found != unique:
        raise RuntimeError(f"{peer.name}: {unique} orders, but {found} effects")


def python(*arguments: str) -> list[str]:
    """Return a command of this interpreter."""
    return [sys.executable, *arguments]
