"""Frames between the process with librocketmq and its parent, through two pipes: JSON, its size in front."""

import json
import struct
from collections.abc import Mapping
from threading import Lock
from typing import IO, Any

Frame = Mapping[str, Any]

Identity = tuple[str, int, int, int, str]
"""What makes a message this one and no other: its topic ("" for the group's retries), queue number, offset, the time when
the broker stored it (milliseconds since 1970) and its unique id. Queues of several brokers have the same numbers."""

STARTED, FAILED, MESSAGE, REACHED, FLUSHED = "started", "failed", "message", "reached", "flushed"
"""What the process says: a callback waits for `message`; callbacks have come as far as `reached` in some queues; what the
library had written by `flush` is on its way."""

FINISHED, ANSWERED, FLUSH = "finished", "answered", "flush"
"""The parent's frames after the first: `messages` are finished, waited for or not; `message` is, if a callback waits for it."""

_SIZE = struct.Struct(">I")


class Writer:
    """Writes frames, each whole; safe for all threads.

    Args:
        stream: a pipe, unbuffered.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = Lock()

    def write(self, frame: Frame) -> None:
        """Write one frame.

        Raises:
            OSError: the other side is gone.
            ValueError: the pipe is closed.
        """
        text = json.dumps(frame).encode()
        data = _SIZE.pack(len(text)) + text
        with self._lock:
            while data:
                data = data[self._stream.write(data) :]


def read(stream: IO[bytes]) -> Frame | None:
    """Return the next frame; None at the end, also at one in the middle of a frame.

    Args:
        stream: a pipe, buffered.
    """
    size = stream.read(_SIZE.size)
    if len(size) < _SIZE.size:
        return None
    (expected,) = _SIZE.unpack(size)
    text = stream.read(expected)
    if len(text) < expected:
        return None
    found: Frame = json.loads(text)
    return found
