"""Counts what an app asks PostgreSQL for while no message arrives, with more and more processes.

    python -m benchmarks.runs.idle --processes 1 8 32

The database is that of ONCEMQ_TEST_POSTGRESQL; a database of its own is created in it and dropped. Three consumers, whose messages are in a file, write
records, wait in the ledger, and publish. Every statement passes through a proxy that counts it, BEGIN and COMMIT also; so any server will do.
Processes start one after the other, and are left alone for a while before anything is counted. `--threads` runs the app as often in one process, where
the machine is too small for so many.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Self

from benchmarks.runs.processes import running
from benchmarks.stage.servers import own_database, postgresql
from sqlalchemy import URL, Engine, create_engine, text

from oncemq import App

APP = """\
app: shop
state: "{folder}/state"
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "{database}"}}
topics:
  order.paid: {{key: body.order, identity: body.payment, strategies: [unique_key]}}
  order.moved: {{key: body.order, version: body.number, strategies: [sequence]}}
  order.sent: {{key: body.order, identity: body.parcel, strategies: [unique_key]}}
consumers:
  points: {{topic: order.paid, handler: "handlers:send", publishes: [order.sent]}}
  steps: {{topic: order.moved, handler: "handlers:note"}}
  parcels: {{topic: order.sent, handler: "handlers:note"}}
"""
HANDLERS = """
from oncemq import Publisher

def note(order: dict) -> None: ...

def send(order: dict, publisher: Publisher) -> None: ...
"""
_STARTUP = 4
_LONG_ENOUGH = 12
"""Of a text: to tell statements apart."""


class Counting:
    """Counts the statements of all connections that pass.

    Args:
        there: the database.
    """

    def __init__(self, there: URL) -> None:
        self.statements: Counter[str] = Counter()
        self._there = there
        self._loop = asyncio.new_event_loop()
        self.port = 0

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection(self._there.host, self._there.port)
        back = asyncio.ensure_future(_copy(answers, writer))
        with suppress(asyncio.IncompleteReadError, OSError):
            size = await reader.readexactly(_STARTUP)
            asked.write(size + await reader.readexactly(int.from_bytes(size) - _STARTUP))
            texts: dict[bytes, str] = {}
            bound = ""
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                asked.write(head + body)
                kind, parts = head[:1], body.split(b"\0")
                if kind == b"Q":
                    self.statements[_short(parts[0])] += 1
                elif kind == b"P":
                    texts[parts[0]] = _short(parts[1])
                elif kind == b"B":
                    bound = texts.get(parts[1], "?")
                elif kind == b"E":
                    self.statements[bound] += 1
        asked.close()
        await back

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._serve())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await source.read(65536):
            target.write(part)
    target.close()


def _short(text: bytes) -> str:
    """Return the verb and the ledger's tables of a statement."""
    words = text.decode(errors="replace")
    verb = words.split(maxsplit=1)[0] if words.strip() else ""
    tables = dict.fromkeys(re.findall(r"oncemq_\w+", words))
    return f"{verb} {' '.join(tables) or words[:40].partition(' ')[2][:30]}".strip()


@contextmanager
def app(count: int, *, together: bool) -> Iterator[Counting]:
    """Run the app in so many processes on an empty database; `together` in this one."""
    with (
        own_database(postgresql()) as mine,
        tempfile.TemporaryDirectory() as folder,
        Counting(mine) as counting,
    ):
        url = mine.set(host="127.0.0.1", port=counting.port).update_query_dict({"sslmode": "disable"})
        Path(folder, "handlers.py").write_text(HANDLERS)
        file = Path(folder, "app.yaml")
        file.write_text(APP.format(folder=folder, database=url.render_as_string(hide_password=False)))
        command = [sys.executable, "-m", "oncemq", "-f", str(file)]
        subprocess.run([*command, "tables", "create"], check=True, stdout=subprocess.DEVNULL)
        if together:
            with in_threads(file, count):
                yield counting
            return
        log = Path(folder, "log")
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        with running([*command, "run", "--processes", str(count)], 1, {"PYTHONPATH": path}, log) as all_:
            engine = create_engine(mine)
            while _running(engine) < count:
                all_.insist()
                sleep(0.5)
            engine.dispose()
            yield counting


@contextmanager
def in_threads(file: Path, count: int) -> Iterator[None]:
    """Run the app so many times in this process; each has the threads and connections of a process."""
    sys.path.insert(0, str(file.parent))
    apps = [App.from_yaml(file) for _ in range(count)]
    try:
        for each in apps:
            each.start()
        yield
    finally:
        for each in apps:
            each.stop()
        sys.path.remove(str(file.parent))
        sys.modules.pop("handlers", None)


def _running(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM oncemq_workers")).scalar_one())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", action="store_true", help="all in one process, without a supervisor")
    parser.add_argument("--settle", type=float, default=20, help="seconds before counting")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of counting")
    parser.add_argument("--top", type=int, default=0, help="print the most frequent statements")
    given = parser.parse_args()
    for count in given.processes:
        with app(count, together=given.threads) as counting:
            sleep(given.settle)
            counting.statements.clear()
            sleep(given.seconds)
            found = counting.statements.copy()
        whole = found.total() / given.seconds
        work = sum(n for words, n in found.items() if words.split()[0] not in {"BEGIN", "COMMIT", "ROLLBACK"})
        print(
            f"{count:>3} processes: {whole:7.2f} statements/s, {whole / count:5.2f} for each process, "
            f"{work / given.seconds / count:5.2f} without BEGIN, COMMIT and ROLLBACK",
            flush=True,
        )
        for statement, n in found.most_common(given.top):
            print(f"     {n / given.seconds / count:6.3f}  {statement}")


if __name__ == "__main__":
    main()
