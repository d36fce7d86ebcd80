"""Orders to publish, and the rate at which it was done."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

Order = dict[str, object]


def order(number: int | str) -> Order:
    """Return one order."""
    return {"order_id": f"order-{number}", "user_id": f"user-{number}", "amount": 12.5}


def asked() -> list[Order]:
    """Return as many orders as the command line asks for."""
    return [order(number) for number in range(int(sys.argv[2]))]


@contextmanager
def timed(messages: int) -> Iterator[None]:
    """Print the rate of the block."""
    began = time.perf_counter()
    yield
    rate = messages / (time.perf_counter() - began)
    sys.stdout.write(json.dumps({"rate": rate}) + "\n")
