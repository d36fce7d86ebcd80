"""What a measurement tells its peers."""

import os
from functools import cache

RABBITMQ, POSTGRESQL, QUEUE, FOLDER = "BENCH_RABBITMQ", "BENCH_POSTGRESQL", "BENCH_QUEUE", "BENCH_FOLDER"
KAFKA = "BENCH_KAFKA"
ROCKETMQ, ROCKETMQ_GRPC = "BENCH_ROCKETMQ", "BENCH_ROCKETMQ_GRPC"


def told(name: str) -> str:
    """Return what was told under this name."""
    return os.environ[name]


@cache
def _file() -> int:
    return os.open(f"{told(FOLDER)}/effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def effect_outside(order_id: str) -> None:
    """Do something that no database transaction covers: one line in a file."""
    os.write(_file(), f"{order_id}\n".encode())
