"""How a peer that has no effect tells how many messages it had: a number in a file of each process, written 20 times a second."""

import itertools
import os
from collections.abc import Callable
from threading import Event, Thread

from benchmarks.peers.environment import FOLDER, told

FILES = "count*"
DIGITS = 20
EVERY = 0.05


def counter() -> Callable[[], int]:
    """Return a function to be called for every message, from any thread."""
    numbers = itertools.count(1)
    seen = [0]

    def one_more() -> int:
        seen[0] = number = next(numbers)
        return number

    def tell() -> None:
        file = os.open(f"{told(FOLDER)}/count-{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o600)
        pause = Event()
        while not pause.wait(EVERY):
            os.pwrite(file, b"%0*d" % (DIGITS, seen[0]), 0)

    Thread(target=tell, daemon=True).start()
    return one_more
