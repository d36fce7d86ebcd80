"""Keeps bodies in a folder, a bucket, or anything else that fsspec opens."""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from oncemq.errors import ClaimStoreUnavailable, ConfigError, MissingExtra

MARKER: Final = ".oncemq-claim-check"
"""A file that shows that the store is there: without it, a body that is not found may come back."""

Result = TypeVar("Result")


class Store:
    """A place for bodies; safe for any number of threads, and after a fork.

    Args:
        url: `file:///…`, `s3://bucket/prefix` or another URL of fsspec.
        options: for fsspec's file system, such as `endpoint_url`.

    Raises:
        MissingExtra: fsspec, or the package of this scheme, is not installed.
        ConfigError: the URL names nothing that can be a store.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        if find_spec("fsspec") is None:
            raise MissingExtra(
                "claim_check needs the package 'fsspec', which is not installed: pip install 'oncemq[claim-check]'"
            )
        self.url = url.rstrip("/")
        self._options = dict(options or {})
        self._lock = threading.Lock()
        self._pid = 0
        self._system: Any = None
        self._seen = False
        scheme, _, place = self.url.partition("://")
        if not place.strip("/") or ".." in place.split("/"):
            raise ConfigError(
                f"{url!r} names no folder for bodies: write file:///folder or s3://bucket/prefix"
            )
        self._local = scheme == "file"
        if self._local and not place.startswith("/"):
            raise ConfigError(
                f"{url!r} depends on the folder in which a process starts: write file:///folder"
            )
        self._root = place
        self._open()

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def put(self, name: str, body: bytes) -> None:
        """Keep a body; a second time is harmless.

        Raises:
            ClaimStoreUnavailable: the store is away, or refuses.
        """
        self._asked("keeping a body", partial(self._put, name, body))

    def get(self, name: str, most: int) -> bytes | None:
        """Return at most so many bytes of a body; None if the store is there and has none of this name.

        Raises:
            ClaimStoreUnavailable: the store is away, or refuses.
        """
        return self._asked("fetching a body", partial(self._get, name, most))

    def folders(self) -> list[str]:
        """Return the names of the folders.

        Raises:
            ClaimStoreUnavailable: the store is away, or refuses.
        """
        return self._asked("listing bodies", self._folders)

    def delete(self, folder: str) -> None:
        """Delete a folder and its bodies; one that is gone is no error.

        Raises:
            ClaimStoreUnavailable: the store is away, or refuses.
        """
        self._asked("deleting bodies", partial(self._delete, folder))

    def _asked(self, doing: str, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except ClaimStoreUnavailable:
            raise
        except Exception as error:
            raise ClaimStoreUnavailable(
                f"{doing} in {self.url} failed: {error or type(error).__name__}"
            ) from error

    def _open(self) -> Any:
        """Return fsspec's file system; a forked process gets its own."""
        with self._lock:
            if self._system is None or self._pid != os.getpid():
                fsspec: Any = import_module("fsspec")

                try:
                    self._system, self._root = fsspec.core.url_to_fs(
                        self.url, use_listings_cache=False, skip_instance_cache=True, **self._options
                    )
                except ImportError as error:
                    raise MissingExtra(f"a store at {self.url} needs another package: {error}") from error
                except (ValueError, TypeError) as error:
                    raise ConfigError(f"a store at {self.url} cannot be used: {error}") from error
                self._pid = os.getpid()
            return self._system

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _put(self, name: str, body: bytes) -> None:
        if self._local or not self._seen:
            self._be_there()
        if self._local:
            _write(Path(self._path(name)), body)
        else:
            self._open().pipe_file(self._path(name), body)

    def _get(self, name: str, most: int) -> bytes | None:
        try:
            return bytes(self._open().cat_file(self._path(name), start=0, end=most))
        except FileNotFoundError:
            self._be_there()
            return None

    def _be_there(self) -> None:
        """Have the marker; it is made once, and when it goes, the store is away.

        Raises:
            ClaimStoreUnavailable: it has gone.
        """
        system, path = self._open(), self._path(MARKER)
        if system.exists(path):
            self._seen = True
        elif self._seen:
            raise ClaimStoreUnavailable(
                f"{self.url} has no file {MARKER} any more: the store is away, or was emptied"
            )
        else:
            self._make_marker(system, path)

    def _make_marker(self, system: Any, path: str) -> None:
        if self._local:
            _write(Path(path), b"")
        else:
            system.pipe_file(path, b"oncemq")
        self._seen = True

    def _folders(self) -> list[str]:
        try:
            found = self._open().ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def _delete(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self._open().rm(self._path(folder), recursive=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is whole whenever it can be seen, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        with new.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
