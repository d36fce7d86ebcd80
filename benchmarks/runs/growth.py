"""Runs an app over many messages with keys of their own, and looks whether anything of it grows with their number.

    python -m benchmarks.runs.growth --messages 1000000

Every tenth message fails for good, and Redis goes away with the first message: `tiered` leaves all decisions to the database. Memory, descriptors and
threads of the worker process, and the write-ahead logs of SQLite files, are read while it runs and an operator's commands run beside it, the log's
bytes and the ledger's rows at the end. What must not grow is compared between the second quarter and the end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from threading import Event
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import Engine, create_engine, inspect, text

from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy

APP = """
app: growth
brokers: {{local: {{url: "{broker}"}}}}
database: {{url: "{database}"}}
redis: {{url: "{redis}", timeout: 100ms}}
defaults: {{retry: {{attempts: 2, backoff: {{first: 100ms, max: 100ms}}}}}}
topics: {{orders: {{key: body.id, identity: [body.id], strategies: [tiered: {{bloom: false}}]}}}}
consumers: {{count: {{topic: orders, handler: "handlers:count"}}}}
"""
HANDLERS = """
from sqlalchemy import text
from sqlalchemy.orm import Session

def count(order: dict, session: Session) -> None:
    if order["id"] % 10 == 0:
        raise ValueError("every tenth one fails")
    session.execute(text("INSERT INTO counted VALUES (:id)"), order)
"""
OPERATIONS = (
    ("inspect", "1"),
    ("dead-letters", "list", "--limit", "100"),
    ("status",),
    ("purge", "--older-than", "7d"),
    ("reconcile",),
)
"""What an operator types meanwhile."""
FAILING = 10
LOOK_EVERY = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")
MEGABYTE = 1024 * 1024


class Look(NamedTuple):
    """A look at the worker.

    Args:
        done: messages that were applied by then.
        memory: resident megabytes.
        descriptors: open files.
        threads: running ones.
        wal: megabytes of the write-ahead logs of all SQLite files; 0 on servers.
    """

    done: int
    memory: float
    descriptors: int
    threads: int
    wal: float


class Growth(NamedTuple):
    """What was found.

    Args:
        looks: in order.
        seconds: from the start to the end.
        log_bytes: of standard error, all levels that are on by default.
        rows: of each table, at the end.
        applied: effects, which must be nine of ten messages.
        operations: the seconds of each command that ran meanwhile, and its exit code.
    """

    looks: Sequence[Look]
    seconds: float
    log_bytes: int
    rows: Mapping[str, int]
    applied: int
    operations: Sequence[tuple[str, float, int]]

    def between(self, part: float) -> Look:
        """Return the last look before this part of the messages was applied."""
        wanted = self.applied * part
        return [look for look in self.looks if look.done <= wanted or look is self.looks[0]][-1]


def measure(folder: Path, messages: int, redis: str, broker: str = "", database: str = "") -> Growth:
    """Publish the messages, consume them to the end, and return what grew.

    Args:
        folder: an empty one, for files.
        messages: how many.
        redis: URL of a server that the app sees through a door, which is closed then.
        broker: URL; a file in the folder by default.
        database: URL of an empty database; a file in the folder by default.
    """
    broker = broker or f"embedded:///{folder / 'broker.db'}"
    database = database or f"sqlite:///{folder / 'growth.db'}"
    real = urlsplit(redis)
    door = TcpProxy(real.hostname or LOOPBACK, real.port or 6379)
    seen = real._replace(netloc=f"{real.netloc.rpartition('@')[0]}@{door.address}").geturl()
    (folder / "app.yaml").write_text(APP.format(broker=broker, database=database, redis=seen))
    (folder / "handlers.py").write_text(HANDLERS)
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE counted (id INTEGER)"))
    oncemq(folder, "tables", "create")
    lines = folder / "orders.jsonl"
    lines.write_text("".join(f'{{"id": {number}}}\n' for number in range(messages)))
    oncemq(folder, "publish", "orders", str(lines))
    started = monotonic()
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "oncemq", "run", "--until-idle", "3s"]
        with subprocess.Popen(command, cwd=folder, stderr=log) as running, ThreadPoolExecutor(1) as operator:
            operated = operator.submit(lambda: list(_operate(folder, running)))
            looks = list(_looks(running, engine, door, folder))
        if running.returncode != 0:
            raise RuntimeError((folder / "log").read_text()[-2000:])
    seconds = monotonic() - started
    with engine.connect() as connection:
        tables = [name for name in inspect(connection).get_table_names() if name.startswith("oncemq_")]
        rows = {name: int(connection.scalar(text(f'SELECT COUNT(*) FROM "{name}"')) or 0) for name in tables}
        applied = int(connection.scalar(text("SELECT COUNT(*) FROM counted")) or 0)
    engine.dispose()
    door.close()
    return Growth(looks, seconds, (folder / "log").stat().st_size, rows, applied, operated.result())


def oncemq(folder: Path, *arguments: str) -> None:
    """Run a command to its end."""
    subprocess.run(
        [sys.executable, "-m", "oncemq", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )


def _looks(
    running: "subprocess.Popen[bytes]", engine: Engine, door: TcpProxy, folder: Path
) -> Iterator[Look]:
    while running.poll() is None:
        Event().wait(LOOK_EVERY)
        with suppress(FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            look = _look(_worker(running.pid), engine, folder)
            # A process that ends, or has not begun, says nothing about one that runs.
            if look.done and look.threads > 1:
                door.refuse()
                yield look


def _operate(folder: Path, running: "subprocess.Popen[bytes]") -> Iterator[tuple[str, float, int]]:
    """Run each command in turn as long as the app runs."""
    for operation in cycle(OPERATIONS):
        if running.poll() is not None:
            return
        started = monotonic()
        command = [sys.executable, "-m", "oncemq", *operation]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        yield operation[0], monotonic() - started, done.returncode


def _worker(supervisor: int) -> int:
    """Return the worker process: the only child of the process that forks workers, else the youngest one of the supervisor."""
    children = _children(supervisor)
    # A spawned one is the youngest: before it the supervisor starts what tracks its resources.
    return (_children(children[0]) or children)[-1]


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _look(worker: int, engine: Engine, folder: Path) -> Look:
    place = Path(f"/proc/{worker}")
    pages = int((place / "statm").read_text().split()[1])
    with engine.connect() as connection:
        done = int(connection.scalar(text("SELECT COUNT(*) FROM counted")) or 0)
    return Look(
        done,
        pages * PAGE / MEGABYTE,
        len(list((place / "fd").iterdir())),
        len(list((place / "task").iterdir())),
        wal_bytes(folder) / MEGABYTE,
    )


def wal_bytes(folder: Path) -> int:
    """Return the bytes of the write-ahead logs of all SQLite files in a folder."""
    return sum(file.stat().st_size for file in folder.glob("*-wal"))


def report(found: Growth, messages: int) -> Iterator[str]:
    """Yield lines for people."""
    yield f"{messages} messages in {found.seconds:.0f} s, {found.applied} applied, every tenth failed twice"
    yield f"{'applied':>10} {'MB':>8} {'files':>6} {'threads':>8} {'WAL MB':>8}"
    for part in (0.25, 0.5, 0.75, 1.0):
        look = found.between(part)
        yield f"{look.done:>10} {look.memory:>8.1f} {look.descriptors:>6} {look.threads:>8} {look.wal:>8.1f}"
    yield f"write-ahead logs: {max(look.wal for look in found.looks):.1f} MB at most"
    yield f"log: {found.log_bytes} bytes, {found.log_bytes / (messages / FAILING):.1f} for each message that failed"
    for name in sorted({name for name, _, _ in found.operations}):
        mine = [(seconds, code) for each, seconds, code in found.operations if each == name]
        seconds, codes = [seconds for seconds, _ in mine], sorted({code for _, code in mine})
        yield f"oncemq {name}: {len(mine)} times, {max(seconds):.1f} s at most, exit codes {codes}"
    for table, rows in sorted(found.rows.items()):
        if rows:
            yield f"{table}: {rows} rows"


def main() -> None:
    """Print what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--redis", default=os.environ.get("ONCEMQ_TEST_REDIS", "redis://127.0.0.1:6379/0"))
    parser.add_argument("--broker", default="")
    parser.add_argument("--database", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.messages, given.redis, given.broker, given.database)
    print("\n".join(report(found, given.messages)))


if __name__ == "__main__":
    main()
