"""Finds librocketmq, and the package rocketmq-client-python on top of it, also on a 1.x library."""

import ctypes
import ctypes.util
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

VARIABLE = "ROCKETMQ_LIBRARY"
NAME = "librocketmq.dylib" if sys.platform == "darwin" else "librocketmq.so"
ADVICE = (
    "install Apache's package rocketmq-client-cpp, or run `oncemq rocketmq fetch-library` (Linux on x86-64), or name "
    f"the file in the option library: or in the environment variable {VARIABLE}"
)

ABSENT_IN_1 = frozenset(
    {
        "CreateOrderlyProducer",
        "SendMessageOrderlyByShardingKey",
        "CreateTransactionProducer",
        "SendMessageTransaction",
    }
)
"""What the Python package looks up when it is imported, and 1.x does not have; nothing here calls them."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where a fetched library lies: the user's, outside of every site-packages."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "oncemq" / "librocketmq"


def find(declared: str | None, environment: Mapping[str, str]) -> str:
    """Return the library's path, or its name where the system's loader finds it.

    Args:
        declared: the option `library:`.
        environment: of the process.

    Raises:
        FileNotFoundError: what was named is not there, or nothing was found anywhere; the text says what to do.
    """
    for source, named in (("the option library:", declared), (VARIABLE, environment.get(VARIABLE))):
        if named:
            if not Path(named).is_file():
                raise FileNotFoundError(f"{source} names {named!r}, which is no file – {ADVICE}")
            return named
    for path in _usual(environment):
        if path.is_file():
            return str(path)
    found = ctypes.util.find_library("rocketmq")
    if found is None:
        raise FileNotFoundError(f"librocketmq is not installed – {ADVICE}")
    return found


def _usual(environment: Mapping[str, str]) -> Iterator[Path]:
    spec = importlib.util.find_spec("rocketmq")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(folder) / NAME
    yield cache_folder(environment) / NAME


class _Library(ctypes.CDLL):
    """A library that lacks what 1.x lacks only when that is called."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in ABSENT_IN_1:
                raise
            stand_in = _Absent(name)
            setattr(self, name, stand_in)
            return stand_in


class _Absent:
    """Stands where a function would be; takes its declaration."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object) -> None:
        raise NotImplementedError(f"this librocketmq has no {self._name}; 2.0 or newer has")


def load(path: str) -> Any:
    """Return the package's module `rocketmq.ffi`, bound to the library at `path`.

    Raises:
        ImportError: the file is no library for this machine, or no librocketmq.
    """
    try:
        library = _Library(os.fspath(path))
        # The package would look in two places of its own, and bind what it finds there.
        with (
            _replaced(ctypes.util, "find_library", lambda _name: path),
            _replaced(ctypes.cdll, "LoadLibrary", lambda _name: library),
        ):
            return importlib.import_module("rocketmq.ffi")
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be used as librocketmq: {error} – {ADVICE}") from error


def at_once(library: Any, name: str) -> Any:
    """Return a function that keeps the interpreter to itself while it runs: for those that only look something up.

    Every other call lets go of the interpreter, for which all threads of the library queue.
    """
    declared = getattr(library, name)
    function = getattr(ctypes.PyDLL(None, handle=library._handle), name)
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function


@contextmanager
def _replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, before)


_OPEN_FILES = next(folder for folder in (Path("/proc/self/fd"), Path("/dev/fd")) if folder.is_dir())


def send_at_once() -> None:
    """Have all connections of this process send what is written, now and from now on, whatever is unacknowledged.

    The kernel keeps a small request back for up to 40 ms otherwise (Nagle's algorithm and delayed acknowledgements).
    """
    for file in list(_OPEN_FILES.iterdir()):
        # Not a socket, or gone: the folder lists also what listing it took.
        with suppress(OSError):
            _set_no_delay(int(file.name))


def _set_no_delay(number: int) -> None:
    mine = socket.socket(fileno=os.dup(number))
    try:
        if mine.family in (socket.AF_INET, socket.AF_INET6):
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    finally:
        mine.close()
