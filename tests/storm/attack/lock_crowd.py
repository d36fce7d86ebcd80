"""One process of contenders for a few locks, and the memory in which all processes see who is inside of which.

Arguments: prefix of the locks' names, the file of that memory, the first contender's number, how many contenders, and
how many acquisitions each; the URL of Redis comes as the first line of the input. Prints how often two met, as JSON.
"""

import json
import mmap
import random
import struct
import sys
import threading
import time
from pathlib import Path

from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import Lock

LOCKS = 10
_CELL = struct.Struct("=QQ")


class Inside:
    """Who is inside of each lock, and how often anybody was: two numbers for each, in a file that processes map.

    Nothing guards the numbers but the lock itself, and its holder pauses between reading and writing them: so anyone who
    is inside with another one sees it, is seen, or makes the count fall behind.
    """

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(_CELL.size * LOCKS))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 0)

    def count(self) -> int:
        """Return how often anybody was inside of any lock."""
        return sum(self._read(lock)[1] for lock in range(LOCKS))

    def visit(self, lock: int, visitor: int) -> bool:
        """Go in and out; returns whether no one else was there."""
        before, visits = self._read(lock)
        _CELL.pack_into(self._memory, lock * _CELL.size, visitor, visits)
        time.sleep(0)  # others may run
        meanwhile, _ = self._read(lock)
        _CELL.pack_into(self._memory, lock * _CELL.size, 0, visits + 1)
        return before == 0 and meanwhile == visitor

    def _read(self, lock: int) -> tuple[int, int]:
        visitor, visits = _CELL.unpack_from(self._memory, lock * _CELL.size)
        return int(visitor), int(visits)


def main() -> None:
    """Contend until every contender has had its acquisitions."""
    prefix, file, *numbers = sys.argv[1:]
    first, contenders, acquisitions = map(int, numbers)
    url = sys.stdin.readline().strip()
    inside, clients = Inside(Path(file)), [make_client(url) for _ in range(2)]
    met: list[int] = []

    def contend(number: int) -> None:
        client, chance = clients[number % 2], random.Random(number)
        for _ in range(acquisitions):
            lock = chance.randrange(LOCKS)
            with Lock(client, f"{prefix}-{lock}"):
                if not inside.visit(lock, number + 1):
                    met.append(number)

    threads = [threading.Thread(target=contend, args=(first + number,)) for number in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    sys.stdout.write(json.dumps(len(met)) + "\n")


if __name__ == "__main__":
    main()
