"""Every peer in every situation that is measured: what runs, on which messages, and what counts as done."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from benchmarks import guarantees, inside, locks, look_ups
from benchmarks.peers.publishing import measure as publishing
from benchmarks.peers.span_sink import span_sink
from benchmarks.runs import drain, embedded, latency
from benchmarks.runs.drain import COUNT, FILE, LEFT, QUEUE, SUM, Drain
from benchmarks.runs.rocketmq import java, python_with
from benchmarks.stage.load import Orders
from benchmarks.stage.load_dramatiq import publish_for_dramatiq
from benchmarks.stage.servers import Servers

Measure = Callable[[Servers, float], dict[str, float]]
"""Called with the servers and a scale for the number of messages; returns figures by name."""


@dataclass(frozen=True, slots=True)
class Case:
    """One peer in one situation.

    Args:
        label: what a reader of the table is told.
        measure: does it.
        long: it takes minutes, and is measured once and only where asked for.
        once: repeating it shows nothing new.
    """

    label: str
    measure: Measure
    long: bool = False
    once: bool = False


def _drain(label: str, spec: Drain, *, long: bool = False) -> Case:
    return Case(label, lambda servers, scale: drain.measure(spec, servers, scale), long)


def _python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def _oncemq(app: str = "database", processes: int = 1) -> list[str]:
    file = f"benchmarks/peers/oncemq/{app}.yaml"
    return _python("-m", "oncemq", "-f", file, "run", "--processes", str(processes))


def _on_one_cpu(command: list[str]) -> list[str]:
    last = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return ["taskset", "-c", str(last), *command]


def _copies(share: float, *, tiered: bool) -> Case:
    """Return the usual case with this share of copies among the messages."""
    orders = Orders(40_000, share / (1 - share))
    name = f"OnceMQ, `{'tiered' if tiered else 'unique_key'}`, {share:.0%} copies"
    if not tiered:
        return _drain(name, Drain(_oncemq(), orders, LEFT))
    command = _python("-m", "oncemq", *_files("database", "tiered"), "run")
    spec = Drain(command, orders, LEFT, figures=(_KEPT_OFF,) if share else ())

    def measure(servers: Servers, scale: float) -> dict[str, float]:
        figures = drain.measure(spec, servers, scale)
        kept_off = figures.pop(_KEPT_OFF, None)
        return figures if kept_off is None else {**figures, "kept_off_percent": 100 * kept_off}

    return Case(name, measure)


def _files(*names: str) -> list[str]:
    return [word for name in names for word in ("-f", f"benchmarks/peers/oncemq/{name}.yaml")]


def _orm(processes: int) -> Case:
    orders = Orders(15_000 + 10_000 * processes)
    spec = Drain(_oncemq(processes=processes), orders, consumers=processes)
    return _drain(f"OnceMQ, ORM handler, {_counted(processes)}", spec)


def _traced(sample: float) -> Case:
    """Return the usual case with traces of this share of the messages, sent to a collector over HTTP in batches."""
    command = _python("-m", "oncemq", *_files("database", "traced"), "run")

    def measure(servers: Servers, scale: float) -> dict[str, float]:
        with span_sink() as url:
            told = {"BENCH_SAMPLE": str(sample), "OTEL_EXPORTER_OTLP_ENDPOINT": url}
            return drain.measure(Drain(command, Orders(25_000), environment=told), servers, scale)

    return Case(f"OnceMQ, ORM handler, traces of {sample:.0%}", measure)


def _faststream(processes: int) -> Case:
    command = _python("-m", "benchmarks.peers.faststream_transaction")
    spec = Drain(command, Orders(2500 + 1000 * processes), processes=processes, consumers=processes)
    return _drain(f"FastStream, dedup transaction by hand, {_counted(processes)}", spec)


def _dramatiq(processes: int) -> Case:
    module = "benchmarks.peers.dramatiq_transaction"
    command = _python("-m", "dramatiq", module, "--processes", str(processes), "--threads", "8")
    orders = Orders(3000 + 1500 * processes)
    spec = Drain(command, orders, consumers=processes, publish=publish_for_dramatiq)
    return _drain(f"Dramatiq, dedup transaction by hand, {_counted(processes)}", spec)


def _shared(label: str, messages: int, processes: int = 1, **environment: str) -> Case:
    told = {"BENCH_HANDLER": "add_to_user", **environment}
    spec = Drain(_oncemq(processes=processes), Orders(messages), SUM, environment=told, consumers=processes)
    return _drain(label, spec)


def _partitioned(processes: int) -> Case:
    told = {"BENCH_HANDLER": "add_to_user"}
    command = _oncemq("partitioned", processes=processes)
    orders = Orders(15_000 + 5000 * processes)
    label = f"OnceMQ, shared rows, 16 partitions, {_counted(processes)}"
    return _drain(label, Drain(command, orders, SUM, environment=told, consumers=processes, partitioned=True))


def _poison(label: str, handler: str, share: float) -> Case:
    told = {"BENCH_HANDLER": handler}
    return _drain(label, Drain(_oncemq(), Orders(15_000, poison=share), environment=told))


def _keys(label: str, *, zipf: bool) -> Case:
    told = {"BENCH_KEY": "body.user_id"}
    return _drain(label, Drain(_oncemq(), Orders(25_000, users=1000, zipf=zipf), environment=told))


def _plain(label: str, handler: str, messages: int, effect: str, workers: int) -> Case:
    told = {"BENCH_HANDLER": handler, "BENCH_WORKERS": str(workers)}
    return _drain(label, Drain(_oncemq("plain"), Orders(messages, 0.0), effect, environment=told))


def _faststream_plain(label: str, handler: str, messages: int, effect: str) -> Case:
    command = _python("-m", "benchmarks.peers.faststream_plain", handler)
    return _drain(label, Drain(command, Orders(messages, 0.0), effect))


def _by_hand(label: str, module: str, messages: int, effect: str = drain.POINTS, *arguments: str) -> Case:
    command = _python("-m", f"benchmarks.peers.{module}", *arguments)
    return _drain(label, Drain(command, Orders(messages), effect))


def _ledger(label: str, rows: int, *, days: int = 0, long: bool = False) -> Case:
    """Return the usual case with so many records in the ledger already, which are so many days old."""

    def prepare(servers: Servers) -> None:
        _fill_ledger(servers, rows, days)

    return _drain(label, Drain(_oncemq(), Orders(25_000), prepare=prepare), long=long)


def _fill_ledger(servers: Servers, rows: int, days: int) -> None:
    query = text(
        "INSERT INTO oncemq_processed (consumer, identity, key, processed_at)"
        " SELECT 'bench.points', md5(n::text) || '-old', md5(n::text), now() - make_interval(days => :days)"
        " FROM generate_series(1, :rows) AS n"
    )
    with servers.engine.begin() as connection:
        connection.execute(query, {"rows": rows, "days": days})
    with servers.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE oncemq_processed"))
        connection.execute(text("CHECKPOINT"))


def _oncemq_on(driver: str) -> list[str]:
    return [python_with(driver), "-m", "oncemq", *_files("rocketmq-plain", f"rocketmq-{driver}"), "run"]


def _rocketmq(label: str, command: list[str], messages: int, *, bare: bool = False) -> Case:
    return _drain(label, Drain(command, Orders(messages, 0.0), COUNT, rocketmq=True, bare=bare))


def _kafka(label: str, command: list[str], messages: int, *, bare: bool = False) -> Case:
    return _drain(label, Drain(command, Orders(messages, 0.0), COUNT, kafka=True, bare=bare))


def _guarantee(name: str) -> Case:
    return Case(f"the engine alone, {name}", lambda servers, scale: guarantees.figures(name, servers, scale))


def _counted(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def _latency(label: str, command: list[str], load: latency.Load) -> Case:
    return Case(label, lambda servers, scale: latency.measure(command, load, servers, scale))


_KEPT_OFF = "kept_off_database"
_COPIES = {"0": 0.0, "10": 0.1, "50": 0.5, "90": 0.9}
"""Shares of copies among the messages, by the ends of the cases' names."""

_GROUP = _python("-m", "benchmarks.peers.group_commit")

CASES: dict[str, Case] = {
    "oncemq-1": _orm(1),
    "oncemq-2": _orm(2),
    "oncemq-3": _orm(3),
    "faststream-1": _faststream(1),
    "faststream-2": _faststream(2),
    "faststream-3": _faststream(3),
    "faststream-threads": _by_hand(
        "FastStream, dedup transaction by hand, sync handler in threads", "faststream_threads", 3500
    ),
    "dramatiq-1": _dramatiq(1),
    "dramatiq-2": _dramatiq(2),
    "dramatiq-3": _dramatiq(3),
    "group-commit": _by_hand("group commit by hand, Core inserts", "group_commit", 40_000),
    "group-commit-orm": _by_hand(
        "group commit by hand, ORM object per message", "group_commit", 40_000, drain.POINTS, "orm"
    ),
    "faststream-empty": _faststream_plain("FastStream, empty handler, at least once", "empty", 12_000, QUEUE),
    "oncemq-batch": _drain(
        "OnceMQ, batch handler, Core inserts",
        Drain(_oncemq(), Orders(50_000), environment={"BENCH_HANDLER": "award_many"}),
    ),
    "shared": _shared("OnceMQ, shared rows", 15_000),
    "shared-single": _shared("OnceMQ, shared rows, one transaction per message", 4000, BENCH_BATCH="1"),
    "shared-2-workers": _shared("OnceMQ, shared rows, 2 workers", 15_000, BENCH_WORKERS="2"),
    "shared-2-processes": _shared("OnceMQ, shared rows, 2 processes", 15_000, processes=2),
    "shared-4-processes": _shared("OnceMQ, shared rows, 4 processes", 15_000, processes=4),
    "partitioned-1": _partitioned(1),
    "partitioned-2": _partitioned(2),
    "partitioned-4": _partitioned(4),
    "io-async": _plain("OnceMQ, 20 ms I/O, async, 32 at once", "io_async", 6000, FILE, 32),
    "io-sync": _plain("OnceMQ, 20 ms I/O, 32 threads", "io_sync", 6000, FILE, 32),
    "faststream-io-async": _faststream_plain(
        "FastStream, 20 ms I/O, async, 32 at once", "io_async", 6000, FILE
    ),
    "faststream-io-sync": _faststream_plain("FastStream, 20 ms I/O, 32 in threads", "io_sync", 6000, FILE),
    "empty": _plain("OnceMQ, empty handler, no database", "empty", 60_000, QUEUE, 1),
    "pika": _by_hand("bare pika, nothing read, an ack per 100", "bare_pika", 80_000, QUEUE),
    "publish-one": Case("OnceMQ, `publish`", publishing.script("with_oncemq", "one", 3000)),
    "publish-many": Case("OnceMQ, `publish_many`", publishing.script("with_oncemq", "many", 60_000)),
    "publish-outbox": Case(
        "OnceMQ, `publish_many(session=)`", publishing.script("with_oncemq", "outbox", 20_000)
    ),
    "publish-one-pika": Case(
        "pika, `BlockingConnection` with confirms", publishing.script("with_pika", "one", 3000)
    ),
    "publish-many-pika": Case(
        "pika, `SelectConnection`, 1,000 unconfirmed at most", publishing.script("with_pika", "many", 60_000)
    ),
    "publish-one-faststream": Case(
        "FastStream, `publish`", publishing.script("with_faststream", "one", 3000)
    ),
    "publish-many-faststream": Case(
        "FastStream, 1,000 `publish` gathered", publishing.script("with_faststream", "many", 20_000)
    ),
    "publish-web": Case("FastAPI, OnceMQ's `publish`", publishing.web("oncemq", 6000)),
    "publish-web-outbox": Case("FastAPI, OnceMQ's `publish(session=)`", publishing.web("outbox", 6000)),
    "publish-web-faststream": Case("FastAPI, FastStream's `publish`", publishing.web("faststream", 6000)),
    "rocketmq-1": _drain(
        "OnceMQ, RocketMQ, ORM handler, 1 process", Drain(_oncemq("rocketmq"), Orders(25_000), rocketmq=True)
    ),
    "traced-1": _traced(0.01),
    "traced-100": _traced(1.0),
    "oncemq-one-cpu": _drain(
        "OnceMQ, ORM handler, 1 process on one CPU", Drain(_on_one_cpu(_oncemq()), Orders(25_000))
    ),
    "rocketmq-one-cpu": _drain(
        "OnceMQ, RocketMQ, ORM handler, 1 process on one CPU",
        Drain(_on_one_cpu(_oncemq("rocketmq")), Orders(25_000), rocketmq=True),
    ),
    "rocketmq-empty-one-cpu": _rocketmq(
        "OnceMQ, RocketMQ, empty handler, no database, on one CPU",
        _on_one_cpu(_oncemq("rocketmq-plain")),
        150_000,
    ),
    "rocketmq-empty": _rocketmq(
        "OnceMQ, RocketMQ, empty handler, no database", _oncemq("rocketmq-plain"), 150_000
    ),
    "rocketmq-empty-2": _drain(
        "OnceMQ, RocketMQ, empty handler, no database, 2 processes",
        Drain(
            _oncemq("rocketmq-plain", processes=2), Orders(400_000, 0.0), COUNT, rocketmq=True, consumers=2
        ),
    ),
    "rocketmq-native": _rocketmq(
        "OnceMQ on librocketmq, empty handler, no database", _oncemq_on("native"), 50_000
    ),
    "librocketmq": _rocketmq(
        "bare librocketmq, 4 threads, nothing read",
        [python_with("native"), "-m", "benchmarks.peers.bare_librocketmq"],
        100_000,
        bare=True,
    ),
    "rocketmq-grpc": _rocketmq(
        "OnceMQ through the proxy, empty handler, no database", _oncemq_on("grpc"), 6000
    ),
    "simple-consumer": _rocketmq(
        "bare rocketmq-python-client, 8 threads, an ack each",
        [python_with("grpc"), "-m", "benchmarks.peers.bare_grpc"],
        6000,
        bare=True,
    ),
    "rocketmq-java": _rocketmq(
        # Its first half million messages are slower than what follows: its compiler is at work.
        "RocketMQ's Java push consumer, nothing read",
        java("RocketMQBare.java"),
        400_000,
        bare=True,
    ),
    "kafka-1": _drain(
        "OnceMQ, Kafka, ORM handler, 1 process", Drain(_oncemq("kafka"), Orders(25_000), kafka=True)
    ),
    "kafka-empty": _kafka("OnceMQ, Kafka, empty handler, no database", _oncemq("kafka-plain"), 150_000),
    "faststream-kafka": _kafka(
        "FastStream on confluent-kafka, empty handler, offsets committed in the background",
        _python("-m", "benchmarks.peers.faststream_kafka"),
        60_000,
        bare=True,
    ),
    "faststream-kafka-ack": _kafka(
        "FastStream on confluent-kafka, empty handler, a commit after each message",
        _python("-m", "benchmarks.peers.faststream_kafka", "ack"),
        20_000,
        bare=True,
    ),
    "kafka-bare": _kafka(
        "bare confluent-kafka, nothing read, a commit per 1,000",
        _python("-m", "benchmarks.peers.bare_kafka"),
        1_500_000,
        bare=True,
    ),
    "kafka-bare-poll": _kafka(
        "bare confluent-kafka, a poll, JSON and a function call per message, a commit per 1,000",
        _python("-m", "benchmarks.peers.bare_kafka", "poll"),
        600_000,
        bare=True,
    ),
    "kafka-bare-read": _kafka(
        "bare confluent-kafka, key and JSON read, a commit per 1,000",
        _python("-m", "benchmarks.peers.bare_kafka", "read"),
        1_500_000,
        bare=True,
    ),
    "poison-none": _poison("OnceMQ, no poison", "fail_early", 0.0),
    "poison-early-1": _poison("OnceMQ, 1 % fail before any SQL", "fail_early", 0.01),
    "poison-early-10": _poison("OnceMQ, 10 % fail before any SQL", "fail_early", 0.1),
    "poison-late-1": _poison("OnceMQ, 1 % fail after writing", "fail_late", 0.01),
    "poison-late-10": _poison("OnceMQ, 10 % fail after writing", "fail_late", 0.1),
    "keys-uniform": _keys("OnceMQ, 1,000 keys, evenly used", zipf=False),
    "keys-zipf": _keys("OnceMQ, 1,000 keys, Zipf", zipf=True),
    "latency-low": _latency("OnceMQ, 100 msg/s", _oncemq(), latency.LOW),
    "latency-low-single": _latency(
        "one transaction per message by hand, 100 msg/s",
        _python("-m", "benchmarks.peers.one_by_one"),
        latency.LOW,
    ),
    "latency-low-group": _latency("group commit by hand, 100 msg/s", _GROUP, latency.LOW),
    "latency-high": _latency("OnceMQ, 80 % of what OnceMQ can do", _oncemq(), latency.HIGH),
    "latency-high-group": _latency("group commit by hand, at the same rate", _GROUP, latency.HIGH),
    "latency-high-own": _latency("group commit by hand, 80 % of what it can do", _GROUP, latency.OWN_HIGH),
    "embedded": Case("OnceMQ, embedded broker and SQLite, ORM handler", embedded.measure),
    "engine-direct": Case("OnceMQ, engine in memory, no transaction", inside.engine("direct")),
    "engine-unit": Case("OnceMQ, engine in memory, units on SQLite in memory", inside.engine("unit")),
    "memory": Case("OnceMQ, memory over distinct keys", inside.memory, once=True),
    "lock-single": Case("OnceMQ, `Lock`", locks.single),
    "lock-unit": Case("OnceMQ, `redis_lock`, 100 locks in a unit", locks.unit),
    "lock-redis-py": Case("redis-py, `Lock`", locks.redis_py),
    "lock-redisson": Case("Redisson in Java, `RLock`", locks.redisson),
    "lock-wake-up": Case("OnceMQ, `Lock`, waiting in another client", locks.wake_up),
    "look-up-bloom": Case("OnceMQ, `tiered`, filter in memory alone", look_ups.bloom),
    "look-up-both": Case("OnceMQ, `tiered`, filter in memory and marks in Redis", look_ups.both),
    "look-up-marks": Case("OnceMQ, `tiered`, marks in Redis alone", look_ups.marks),
    **{f"unique-{name}": _copies(share, tiered=False) for name, share in _COPIES.items()},
    **{f"tiered-{name}": _copies(share, tiered=True) for name, share in _COPIES.items()},
    **{f"engine, {name}": _guarantee(name) for name in guarantees.GUARANTEES},
    "ledger-kept": _ledger("OnceMQ, 1 M records that are kept", 1_000_000),
    "ledger-purged": _ledger("OnceMQ, 1 M records that are purged meanwhile", 1_000_000, days=30),
    "full-ledger": _ledger("OnceMQ, 10 M rows in the dedup table", 10_000_000, long=True),
}
