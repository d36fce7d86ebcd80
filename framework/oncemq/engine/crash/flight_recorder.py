"""Flight recorder: records which message was running when a process died, readable after SIGKILL.

A small memory-mapped file per worker, never fsynced: it must survive the process, not the machine.

    u32 index | u32 length | u32 crc32 | u32 unit | identities, each u16 length + UTF-8

The identities are written once per run, then one aligned 4-byte index per item, so a kill tears nothing:
0 = nothing runs; i + 1 = item i's handler; FLUSHING = saving and committing, item at fault unknown. The bit _OVERRUN is
added to a handler's index when its hard time limit is about to end the process.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oncemq.common.private_files import open_private, state_folder
from oncemq.ledger.records.suspects import on_dead
from oncemq.message.envelope import Envelope

_HEAD = struct.Struct("<IIII")
_LENGTH = struct.Struct("<H")
_FIRST_SIZE = 64 * 1024

IDLE = 0
FLUSHING = 0xFFFFFFFE
_OVERRUN = 0x40000000


class Recorder:
    """Writes the record of one worker.

    Attributes:
        index: `index[0] = i + 1` means that item i runs; an attribute, so that it costs no call per item.
    """

    __slots__ = ("_file", "_map", "_path", "_size", "_unit", "index")

    def __init__(self, path: Path) -> None:
        state_folder(path.parent)
        self._path = path
        self._unit = 0
        self._size = 0
        self._file = open_private(path)
        self._map: mmap.mmap
        self.index: memoryview
        self._resize(_FIRST_SIZE)

    def _resize(self, size: int) -> None:
        if self._size:
            self.index.release()
            self._map.close()
        os.ftruncate(self._file, size)
        self._map = mmap.mmap(self._file, size)
        self._size = size
        self.index = memoryview(self._map)[:8].cast("I")

    def begin(self, envelopes: Sequence[Envelope]) -> None:
        """Record the identities of the coming run; nothing is running yet."""
        text = _written(envelopes)
        if _HEAD.size + len(text) > self._size:
            self._resize(2 * (_HEAD.size + len(text)))
        self.index[0] = IDLE
        self._unit = (self._unit + 1) & 0xFFFFFFFF
        self._map[_HEAD.size : _HEAD.size + len(text)] = text
        self._map[4 : _HEAD.size] = struct.pack("<III", len(text), zlib.crc32(text), self._unit)

    def overrun(self) -> None:
        """Record that the process ends because the running handler exceeded its hard time limit."""
        if self._size and self.index[0] not in (IDLE, FLUSHING):
            self.index[0] |= _OVERRUN

    def close(self) -> None:
        """Remove the file: the worker ended normally."""
        if self._size:
            self.index.release()
            self._map.close()
            os.close(self._file)
            self._size = 0
        self.disown()

    def disown(self) -> None:
        """Remove the file of a worker that still runs, when the process nevertheless ends normally."""
        self._path.unlink(missing_ok=True)


class OnDeadRecorder(Recorder):
    """Charges the consumer's `on_dead` function for a message with a death of the process, not the message."""

    def begin(self, envelopes: Sequence[Envelope]) -> None:
        """Record the names of the coming run."""
        super().begin([replace(each, identity=on_dead(each.identity)) for each in envelopes])


class NoRecorder:
    """Writes nothing, where no crash can be read afterwards."""

    __slots__ = ("index",)

    def __init__(self) -> None:
        self.index = [IDLE]

    def begin(self, envelopes: Sequence[Envelope]) -> None:
        """Do nothing."""

    def overrun(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def disown(self) -> None:
        """Do nothing."""


AnyRecorder = Recorder | NoRecorder


@dataclass(frozen=True, slots=True)
class Crash:
    """Record that a dead worker left behind.

    Args:
        consumer: the ledger scope, from the file's name.
        suspects: (key, identity) of the running message, or of the whole unit while it was committing.
        known: the one suspect is certainly at fault; otherwise none is charged and all run alone.
        overrun: its handler exceeded the hard time limit, which ended the process.
    """

    consumer: str
    suspects: tuple[tuple[str, str], ...]
    known: bool
    overrun: bool = False


def read_crash(path: Path, consumer: str) -> Crash | None:
    """Return the content of the record at `path`; None if nothing was running or it is unreadable."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    index, length, crc, _ = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    if index == IDLE or zlib.crc32(text) != crc:
        return None
    entries = _entries(text)
    if index == FLUSHING:
        return Crash(consumer, tuple(entries), known=False)
    number = index & ~_OVERRUN
    if not 1 <= number <= len(entries):
        return None
    return Crash(consumer, (entries[number - 1],), known=True, overrun=number != index)


def _written(envelopes: Sequence[Envelope]) -> bytes:
    parts: list[bytes] = []
    pack = _LENGTH.pack
    for envelope in envelopes:
        key, identity = envelope.key.encode(), envelope.identity.encode()
        parts += (pack(len(key)), key, pack(len(identity)), identity)
    return b"".join(parts)


def _entries(text: bytes) -> list[tuple[str, str]]:
    words: list[str] = []
    position = 0
    while position < len(text):
        (length,) = _LENGTH.unpack_from(text, position)
        position += _LENGTH.size
        words.append(text[position : position + length].decode())
        position += length
    return list(zip(words[::2], words[1::2], strict=True))
