"""Whether memory stays flat: `python -m benchmarks.memory COUNT` handles so many distinct keys and prints the RSS.

The whole engine with `unique_key` on a SQLite file, deliveries made in memory, 1,000 in flight.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engine_room import Room, message
from oncemq.message.envelope import Delivery

IN_FLIGHT = 1000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def megabytes() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


def run(count: int) -> dict[str, float]:
    """Return `early_mb` after a tenth of the keys, `late_mb` after all, their difference, and the rate."""
    with tempfile.TemporaryDirectory(prefix="oncemq-bench-") as folder:
        room = Room(Path(folder), f"sqlite:///{folder}/memory.db", "unique_key")
        room.crew.start()
        scheduler, early, started = room.consumer.scheduler, 0.0, time.monotonic()
        for number in range(count):
            if number % 100 == 0:
                _wait(room, IN_FLIGHT)
            if number == count // 10:
                early = megabytes()
            room.consumer.receive([Delivery(message(number), token=None, generation=1)])
        _wait(room, 1)
        late, seconds = megabytes(), time.monotonic() - started
        if scheduler.waiting():
            raise SystemExit(f"{scheduler.waiting()} messages are left")
        room.crew.stop()
        room.crew.join(30)
        room.close()
    return {
        "early_mb": early,
        "late_mb": late,
        "growth_mb": late - early,
        "rate": count / seconds,
        "keys": count,
    }


def _wait(room: Room, fewer_than: int) -> None:
    until = time.monotonic() + 60
    while room.consumer.rest() >= fewer_than:
        if time.monotonic() > until:
            raise SystemExit("nothing moves")
        time.sleep(0.002)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
