"""The embedded broker end to end: publish, then consume into SQLite, without any server."""

import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.runs.drain import END, WARM_UP
from benchmarks.runs.processes import Processes, running
from benchmarks.stage import tables
from benchmarks.stage.load import Orders
from benchmarks.stage.servers import Servers
from sqlalchemy import create_engine, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine

_APP = "benchmarks/peers/oncemq/embedded.yaml"
_ORDERS = Orders(20_000)
_GIVE_UP = timedelta(minutes=3).total_seconds()


def measure(_servers: Servers, scale: float) -> dict[str, float]:
    """Return `rate`, messages per second from broker file to committed row, and `publish_rate`."""
    orders = Orders(max(2000, round(_ORDERS.messages * scale)))
    with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as name:
        folder = Path(name)
        engine = make_engine(f"sqlite:///{folder}/shop.db")
        tables.create(engine)
        schema.create(engine)
        engine.dispose()
        lines = folder / "orders.jsonl"
        lines.write_text("\n".join(map(_line, orders.bodies("embedded"))))
        environment = {"BENCH_FOLDER": str(folder)}
        started = time.monotonic()
        _publish(lines, environment, folder)
        published = time.monotonic() - started
        command = [sys.executable, "-m", "oncemq", "-f", _APP, "run"]
        with running(command, 1, environment, folder / "log") as processes:
            rate = _watch(folder, orders, processes)
    return {"rate": rate, "publish_rate": orders.messages / published}


def _line(body: dict[str, object]) -> str:
    return tables.OrderPaid.model_validate(body).model_dump_json()


def _publish(lines: Path, environment: dict[str, str], folder: Path) -> None:
    command = [sys.executable, "-m", "oncemq", "-f", _APP, "publish", "orders", str(lines)]
    publisher = Processes(command, 1, environment, folder / "publish.log")
    if publisher.wait(_GIVE_UP) != 0:
        raise RuntimeError(f"publishing failed:\n{publisher.tail()}")


def _watch(folder: Path, orders: Orders, processes: Processes) -> float:
    engine = create_engine(f"sqlite:///{folder}/shop.db")
    query = text("SELECT count(*), count(DISTINCT order_id) FROM bench_points")
    sights: list[tuple[float, int]] = []
    until = time.monotonic() + _GIVE_UP
    try:
        while not sights or sights[-1][1] < orders.unique:
            if time.monotonic() > until:
                raise RuntimeError(f"took too long:\n{processes.tail()}")
            processes.insist()
            time.sleep(0.1)
            with engine.connect() as connection:
                done, different = connection.execute(query).one()
            if done != different:
                raise RuntimeError(f"{done - different} orders with a second effect")
            sights.append((time.monotonic(), done))
    finally:
        engine.dispose()
    inside = [sight for sight in sights if WARM_UP * orders.unique <= sight[1] <= END * orders.unique]
    first, last = inside[0], inside[-1] if len(inside) > 1 else sights[-1]
    return (last[1] - first[1]) / (last[0] - first[0]) * orders.messages / orders.unique
