"""What the engine itself costs: `python -m benchmarks.engine_cost direct|unit COUNT` prints µs per message by stage.

Everything runs in one thread and is measured in its processor time, which neighbours hardly disturb.
"""

import gc
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any

from benchmarks.engine_room import Room, message
from oncemq.message.envelope import Delivery

WINDOW = 1000
"""Messages that are received before they run, as a broker's prefetch would have it."""

_DATABASES = {"direct": None, "unit": "sqlite://"}


class Stopwatch:
    """Adds up the processor time of calls by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with its time added to `stage`; for calls that are rare."""

        def measured(*arguments: Any) -> Any:
            started = thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + thread_time() - started

        return measured


def run(kind: str, count: int) -> dict[str, float]:
    """Return µs per message: `decode`, then what comes on top of it, and their sum `engine`."""
    with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
        room = Room(Path(folder), _DATABASES[kind], "none")
        for warm_up in (True, False):
            watch = Stopwatch()
            _windows(room, watch, 5 * WINDOW if warm_up else count)
        room.close()
    return _stages(watch.seconds, count)


def _windows(room: Room, watch: Stopwatch, count: int) -> None:
    consumer, worker = room.consumer, room.worker
    reader = consumer.plan.reader
    decode = watch.timed("decode", lambda messages: [reader.decode(message) for message in messages])
    understand = watch.timed(
        "understand", lambda window: [consumer.intake.understand(message) for message in window]
    )
    receive = watch.timed("put", consumer.scheduler.put)
    take = watch.timed("take", consumer.scheduler.take)
    work = watch.timed("work", worker.work)
    settler, scheduler = worker._settler, consumer.scheduler
    plain_settle, plain_done = settler.settle, scheduler.done
    settler.settle = watch.timed("settle", plain_settle)
    scheduler.done = watch.timed("done", plain_done)
    try:
        for start in range(0, count, WINDOW):
            messages = [message(number) for number in range(start, start + WINDOW)]
            window = [Delivery(message, token=None, generation=1) for message in messages]
            decode(messages)
            understand(window)
            receive(window)
            while taken := take(worker._batch.limit, 0.0, 1):
                consumer.started(taken)
                work(taken)
                consumer.finished(taken)
    finally:
        settler.settle, scheduler.done = plain_settle, plain_done


def _stages(seconds: dict[str, float], count: int) -> dict[str, float]:
    each = {stage: spent / count * 1e6 for stage, spent in seconds.items()}
    stages = {
        "envelope": each["understand"] - each["decode"],
        "queue": each["put"] + each["take"] + each["done"],
        "run": each["work"] - each["settle"] - each["done"],
        "settle": each["settle"],
    }
    return {"engine_us": sum(stages.values()), "decode_us": each["decode"]} | {
        f"{stage}_us": spent for stage, spent in stages.items()
    }


def main() -> None:
    """Print the median of several runs as JSON."""
    kind, count = sys.argv[1], int(sys.argv[2])
    gc.freeze()
    runs = [run(kind, count) for _ in range(3)]
    print(json.dumps({name: statistics.median(run[name] for run in runs) for name in runs[0]}))


if __name__ == "__main__":
    main()
