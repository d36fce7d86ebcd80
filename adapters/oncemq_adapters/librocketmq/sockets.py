"""The sockets that librocketmq opens, from outside: it leaves their delays on and offers no option for it."""

import os
import socket
from contextlib import suppress
from pathlib import Path

_OPEN_FILES = next(folder for folder in (Path("/proc/self/fd"), Path("/dev/fd")) if folder.is_dir())


def send_at_once() -> None:
    """Have all connections of this process send what is written, now and from now on, whatever is unacknowledged.

    The kernel keeps a small request back for up to 40 ms otherwise (Nagle's algorithm and delayed acknowledgements).
    """
    for one in list(_OPEN_FILES.iterdir()):
        # Not a socket, or gone: the folder lists also what listing it took.
        with suppress(OSError):
            _set_no_delay(int(one.name))


def _set_no_delay(number: int) -> None:
    mine = socket.socket(fileno=os.dup(number))
    try:
        if mine.family in (socket.AF_INET, socket.AF_INET6):
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    finally:
        mine.close()
