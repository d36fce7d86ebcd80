"""An answer's body while it is collected: in memory up to a limit, in a file beyond that."""

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Self

_CHUNK = 2**16


class CollectedBody:
    """Holds an answer until its request has committed; a context manager that releases the bytes at its end.

    Args:
        most: bytes that may be kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._file = SpooledTemporaryFile[bytes](max_size=most + 1)
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the bytes."""
        self._file.close()

    def add(self, part: bytes) -> None:
        """Append bytes."""
        self._file.write(part)
        self.size += len(part)

    def kept(self) -> bytes | None:
        """Return the whole body; None if it is too large to keep."""
        if self.size > self._most:
            return None
        self._file.seek(0)
        return self._file.read()

    def parts(self) -> Iterator[bytes]:
        """Yield the whole body, in pieces."""
        self._file.seek(0)
        while part := self._file.read(_CHUNK):
            yield part
