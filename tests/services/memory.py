"""Whether data of servers can stand in memory: tests make and drop a thousand databases, and none of them outlasts a run."""

import shutil
from pathlib import Path

PLACE = Path("/dev/shm")
ENOUGH = 2 * 1024**3
"""Bytes that must be free for a server; a database of the tests takes some hundred megabytes."""


def roomy(place: Path = PLACE, meminfo: Path = Path("/proc/meminfo")) -> Path | None:
    """Return a folder in memory, None where there is none or too little room; data stand on the disk then."""
    try:
        available = next(
            line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")
        )
        free = min(shutil.disk_usage(place).free, int(available.split()[1]) * 1024)
    except (OSError, StopIteration):
        return None
    return place if free >= ENOUGH else None
