"""Writes log lines to a stream that may be a pipe which nothing reads: lines are lost and counted, and no thread waits."""

import array
import os
import select
import stat
import sys
from contextlib import suppress
from threading import Lock
from typing import TextIO

from oncemq.common.posix import fcntl, termios

_MARGIN = 16_384
"""Bytes of a pipe that stay free: other processes write into it, and may do so between our look and our write."""

_USUAL_SIZE = 65_536
_CUT = " … (cut: longer than the pipe)\n"


class LogOutput:
    """A stream for log lines.

    Args:
        stream: where they go; None if the process has no such stream.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.lost = 0
        self._stream = stream
        self._lock = Lock()
        self._descriptor = _descriptor(stream)

    def write(self, line: str) -> None:
        """Write a line at once, or count it as lost where that would have to wait.

        Raises:
            OSError, ValueError: the stream cannot be written at all.
        """
        if self._stream is None:
            return
        with self._lock:
            if self._descriptor is not None:
                usable = _usable(self._descriptor)
                note = f"{self.lost} log lines are lost: their reader was too slow\n" if self.lost else ""
                line = _shortened(note + line, usable)
                if len(line.encode(errors="replace")) > usable - _used(self._descriptor):
                    self.lost += 1
                    return
                self.lost = 0
            self._stream.write(line)
            self._stream.flush()


def _descriptor(stream: TextIO | None) -> int | None:
    """Return the number of a pipe or socket, whose reader may be slow; None for files, terminals and objects in memory."""
    with suppress(OSError, ValueError, AttributeError):
        number = stream.fileno() if stream is not None else -1
        mode = os.fstat(number).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return number
    return None


def _usable(descriptor: int) -> int:
    """Return how many bytes of a pipe are for us when it is empty."""
    size = _USUAL_SIZE
    with suppress(OSError, AttributeError):
        # A user with many pipes gets small ones.
        size = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    return size - min(_MARGIN, size // 4)


def _used(descriptor: int) -> int:
    """Return how many bytes wait for the reader; more than any pipe holds where a write would have to wait."""
    watch = select.poll()
    watch.register(descriptor, select.POLLOUT)
    if not watch.poll(0):
        return sys.maxsize
    waiting = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting, True)
    return waiting[0]


def _shortened(line: str, most: int) -> str:
    """Return a line that has at most so many bytes."""
    if 4 * len(line) <= most:
        return line
    encoded = line.encode(errors="replace")
    return (
        line if len(encoded) <= most else encoded[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT
    )
