"""The other service: chooses a driver for a ride, which takes seconds, under the ride's lock.

It runs `Dispatch.java` if Java and Redisson's jars are available, else the same in Python.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import redis

from oncemq_strategies.redisson import Lock

REDIS = os.environ.get("REDIS", "redis://localhost:6379/0")
JARS = Path(os.environ.get("REDISSON", "jars"))
LOG = Path("dispatch.log")


def choose(ride: str, seconds: float) -> None:
    """Choose slowly; the old driver is removed first, the new one is set at the end."""
    drivers = redis.Redis.from_url(REDIS)
    with Lock(REDIS, f"ride-lock-{ride}"):
        print(f"Python holds ride-lock-{ride}", flush=True)
        drivers.delete(f"ride-driver-{ride}")
        time.sleep(seconds)
        drivers.set(f"ride-driver-{ride}", "zoe", ex=3600)
    print(f"Python gave ride-lock-{ride} back", flush=True)


def start(ride: str, seconds: str) -> None:
    """Start the service and return when it holds the lock."""
    command = [sys.executable, __file__, "python", ride, seconds]
    if shutil.which("javac") and JARS.is_dir():
        command = ["java", "-cp", f"{JARS}/*", "Dispatch.java", ride, seconds]
    with LOG.open("w") as log:
        service = subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=log, stderr=subprocess.DEVNULL, start_new_session=True
        )
    while "holds" not in LOG.read_text():
        if service.poll() is not None:
            sys.exit(f"the service has ended; look why: {' '.join(command)}")
        time.sleep(0.05)
    print(LOG.read_text(), end="")


if __name__ == "__main__":
    if sys.argv[1] == "python":
        choose(sys.argv[2], float(sys.argv[3]))
    else:
        start(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "3")
