"""The plain files in which processes under attack leave traces: one write per line, so that SIGKILL tears and loses none."""

import os
from collections.abc import Iterator
from pathlib import Path

from storm.oracle.evidence import Seen

TRIED = "tried.log"
ARRIVALS = "arrivals.log"
SENDS = "sends.log"
FIRED = "fired.log"
MOVED = "moved"


class Trace:
    """Appends lines to a file that several processes share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        """Write one line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def lines(path: Path) -> Iterator[list[str]]:
    """Yield each line's words."""
    if path.exists():
        with path.open() as file:
            for line in file:
                yield line.split()


def seen(path: Path) -> list[Seen]:
    """Return a trace of processes, identities, attempts, and whether it came from the group's retries."""
    return [Seen(int(words[0]), words[1], int(words[2]), MOVED in words[3:]) for words in lines(path)]
