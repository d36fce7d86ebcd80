"""What is compared with what, and the ratio that we want to reach."""

from dataclasses import dataclass

AT_LEAST, AT_MOST = "≥", "≤"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Args:
        job: what is done, for the reader.
        ours: the cases that may stand for us; the best one counts.
        theirs: the cases that may stand for the other side; the best one counts. Empty: the figure itself counts.
        target: what the ratio ours/theirs, or the figure, should be; None = only shown.
        figure: which figure is compared.
        bound: whether the target is the least or the most.
        unit: of the figure.
    """

    job: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    target: float | None
    figure: str = "rate"
    bound: str = AT_LEAST
    unit: str = "/s"

    @property
    def cases(self) -> tuple[str, ...]:
        """Every case that the row needs."""
        return self.ours + self.theirs


_ONE = "effectively once, ORM handler, 1 process"
_BEST = "the same, each at its best number of processes"
_POISON = "healthy messages/s beside poison"
_LATENCY = "p99 from publish to commit"
_LOCK = "a lock in Redis acquired and released, one thread"
_PAIRS = "pairs_a_second"
_LOOK_UP = "identities looked up before the database, half of them copies"
_LOOK_UPS = "look_ups_a_second"
_KEPT_OFF = "kept_off_percent"

OURS = ("oncemq-1", "oncemq-2", "oncemq-3")
FASTSTREAM = ("faststream-1", "faststream-2", "faststream-3")
DRAMATIQ = ("dramatiq-1", "dramatiq-2", "dramatiq-3")

_UNIQUE, _IN_ORDER = "unique_key", "unique_key, in order"
_GUARANTEES = {
    "unique_key": (_IN_ORDER, "none", None),
    "sequence": ("sequence, in order", _IN_ORDER, 0.7),
    "state_machine": ("state_machine, in order", _IN_ORDER, 0.7),
    "optimistic_lock": ("optimistic_lock, in order", _IN_ORDER, 0.5),
    "updated-row": ("row updated by the handler, unique_key", _IN_ORDER, 0.4),
    "precondition": ("row updated by the handler, precondition", _IN_ORDER, 0.3),
    "pessimistic_lock": ("pessimistic_lock + unique_key", _UNIQUE, 0.7),
    "redis_lock": ("redis_lock + unique_key", _UNIQUE, 0.7),
    "tiered": ("tiered", _UNIQUE, 0.97),
    "outbox": ("unique_key, one message published", _UNIQUE, 0.6),
    "two_phase": ("two_phase", "none, effects outside", None),
    "redis_flag": ("redis_flag", "none, effects outside", None),
}
"""Rows of the engine alone, by name: a guarantee, the one that it is compared with, and the ratio to reach."""


def _beside(ours: str, theirs: str, target: float | None) -> Row:
    return Row(f"the engine alone, {ours}", (f"engine, {ours}",), (f"engine, {theirs}",), target)


ROWS: dict[str, tuple[Row, ...]] = {
    "once": (
        Row(_ONE, ("oncemq-1",), ("faststream-1", "faststream-threads"), 10),
        Row(_ONE, ("oncemq-1",), ("dramatiq-1",), 6),
        Row(_ONE, ("oncemq-1",), ("faststream-empty",), 1.5),
        Row(_ONE, ("oncemq-1",), ("group-commit",), 0.6),
        Row(_ONE, ("oncemq-1",), ("group-commit-orm",), None),
    ),
    "processes": (
        Row(_BEST, OURS, FASTSTREAM, 10),
        Row(_BEST, OURS, DRAMATIQ, None),
        Row(_BEST, OURS, ("oncemq-1",), 1.4),
    ),
    "batch": (
        Row(
            "effectively once, batch handler with Core inserts",
            ("oncemq-batch",),
            ("faststream-1", "faststream-threads"),
            16,
        ),
        Row("effectively once, batch handler with Core inserts", ("oncemq-batch",), ("group-commit",), None),
    ),
    "shared": (
        Row("read-modify-write of 100 shared rows", ("shared",), ("shared-single",), 2),
        Row("the same with 2 workers", ("shared-2-workers",), ("shared-single",), 1),
        Row("the same with 2 processes", ("shared-2-processes",), ("shared-single",), 1),
        Row("the same with 2 processes", ("shared-2-processes",), ("shared",), 0.9),
        Row("the same with 4 processes", ("shared-4-processes",), ("shared-2-processes",), 0.9),
        Row("the same, 16 partitions, 2 processes", ("partitioned-2",), ("partitioned-1",), 1.5),
        Row("the same, 16 partitions, 4 processes", ("partitioned-4",), ("partitioned-2",), 1),
    ),
    "io": (
        Row("20 ms I/O, effects outside, async", ("io-async",), ("faststream-io-async",), 1),
        Row("20 ms I/O, effects outside, sync", ("io-sync",), ("faststream-io-sync",), 1),
    ),
    "empty": (
        Row("empty handler, no database", ("empty",), ("faststream-empty",), 3),
        Row("empty handler, no database", ("empty",), ("pika",), 0.4),
    ),
    "publish": (
        Row("published, one confirmed after the other", ("publish-one",), ("publish-one-pika",), None),
        Row("published, one confirmed after the other", ("publish-one",), ("publish-one-faststream",), 1),
        Row("published, many confirmed together", ("publish-many",), ("publish-many-pika",), 0.8),
        Row("published, many confirmed together", ("publish-many",), ("publish-many-faststream",), 2),
        Row(
            "published in transactions of 100, sent from the outbox",
            ("publish-outbox",),
            ("publish-many",),
            None,
        ),
        Row("requests that publish a message", ("publish-web",), ("publish-web-faststream",), 0.8),
        Row("requests that publish in their transaction", ("publish-web-outbox",), ("publish-web",), None),
    ),
    "rocketmq": (
        Row(
            "RocketMQ, empty handler, no database",
            ("rocketmq-empty", "rocketmq-empty-2"),
            ("librocketmq",),
            2,
        ),
        Row(
            "RocketMQ, empty handler, no database",
            ("rocketmq-empty", "rocketmq-empty-2"),
            ("rocketmq-java",),
            1,
        ),
        Row("librocketmq, empty handler, no database", ("rocketmq-native",), ("librocketmq",), 0.4),
        Row("RocketMQ's proxy, empty handler, no database", ("rocketmq-grpc",), ("simple-consumer",), 0.9),
        Row("effectively once from RocketMQ, against RabbitMQ", ("rocketmq-1",), ("oncemq-1",), 1),
    ),
    "kafka": (
        Row(
            "Kafka, empty handler, no database",
            ("kafka-empty",),
            ("faststream-kafka", "faststream-kafka-ack"),
            2,
        ),
        Row("Kafka, empty handler, no database", ("kafka-empty",), ("kafka-bare-poll",), 0.6),
        Row("Kafka, empty handler, no database", ("kafka-empty",), ("kafka-bare-read",), None),
        Row("Kafka, empty handler, no database", ("kafka-empty",), ("kafka-bare",), 0.6),
        Row("effectively once from Kafka, against RabbitMQ", ("kafka-1",), ("oncemq-1",), 1),
    ),
    "tracing": (
        Row("effectively once, traces of 1 % of the messages", ("traced-1",), ("oncemq-1",), 0.9),
        Row("effectively once, traces of all messages", ("traced-100",), ("oncemq-1",), 0.6),
    ),
    "one-cpu": (
        Row("effectively once, one process kept on one CPU", ("oncemq-one-cpu",), ("oncemq-1",), None),
        Row("the same from RocketMQ", ("rocketmq-one-cpu",), ("rocketmq-1",), None),
        Row(
            "RocketMQ, empty handler, no database, one process kept on one CPU",
            ("rocketmq-empty-one-cpu",),
            ("rocketmq-empty",),
            None,
        ),
    ),
    "poison": (
        Row(_POISON, ("poison-early-1",), ("poison-none",), 0.8),
        Row(_POISON, ("poison-early-10",), ("poison-none",), 0.4),
        Row(_POISON, ("poison-late-1",), ("poison-none",), 0.6),
        Row(_POISON, ("poison-late-10",), ("poison-none",), 0.25),
    ),
    "engine": (
        Row("the engine beyond decoding, per message", ("engine-unit",), (), 15, "engine_us", AT_MOST, "µs"),
        Row(
            "the engine beyond decoding, per message", ("engine-direct",), (), 15, "engine_us", AT_MOST, "µs"
        ),
    ),
    "latency": (
        Row(_LATENCY, ("latency-low",), ("latency-low-single",), 2, "p99_ms", AT_MOST, "ms"),
        Row(_LATENCY, ("latency-low",), ("latency-low-group",), 2, "p99_ms", AT_MOST, "ms"),
        Row(_LATENCY, ("latency-high",), ("latency-high-own",), 2, "p99_ms", AT_MOST, "ms"),
        Row(_LATENCY, ("latency-high",), ("latency-high-group",), 2, "p99_ms", AT_MOST, "ms"),
    ),
    "keys": (Row("many messages of few keys", ("keys-zipf",), ("keys-uniform",), None),),
    "memory": (Row("memory, growth from 10 % to all keys", ("memory",), (), 20, "growth_mb", AT_MOST, "MB"),),
    "embedded": (Row("no server at all, ORM handler", ("embedded",), (), 3000),),
    "purge": (Row("while old records are purged", ("ledger-purged",), ("ledger-kept",), 0.9),),
    "locks": (
        Row(_LOCK, ("lock-single",), ("lock-redis-py",), 1.2, _PAIRS),
        Row(_LOCK, ("lock-single",), ("lock-redisson",), None, _PAIRS),
        Row(_LOCK, ("lock-unit",), ("lock-redis-py",), 8, _PAIRS),
        Row(_LOCK, ("lock-unit",), ("lock-redisson",), None, _PAIRS),
        Row("from a release to the next holder", ("lock-wake-up",), (), 5, "wake_up_ms", AT_MOST, "ms"),
    ),
    "look-ups": (
        Row(_LOOK_UP, ("look-up-bloom",), (), 1_000_000, _LOOK_UPS),
        Row(_LOOK_UP, ("look-up-both",), (), 50_000, _LOOK_UPS),
        Row(_LOOK_UP, ("look-up-marks",), (), None, _LOOK_UPS),
    ),
    "copies": (
        *(
            Row("effectively once where some come again", (f"tiered-{share}",), (f"unique-{share}",), None)
            for share in (0, 10, 50, 90)
        ),
        *(
            Row(
                "copies that never reach the database",
                (f"tiered-{share}",),
                (),
                99,
                _KEPT_OFF,
                unit="%",
            )
            for share in (10, 50, 90)
        ),
    ),
    **{name: (_beside(*row),) for name, row in _GUARANTEES.items()},
    "full-ledger": (Row("dedup table with 10 M rows", ("full-ledger",), ("oncemq-1",), 0.8),),
}
LONG = ("full-ledger",)
QUICK = ("once", "batch", "shared", "io", "empty", "poison", "engine", "memory", "embedded")
