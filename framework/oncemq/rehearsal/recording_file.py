"""Reads a recording, and says in which line it is wrong."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from oncemq.engine.recording.lines import FORMAT, MAGIC
from oncemq.errors import ConfigError

NO_BODY: Final = object()
"""Stands for a body that was not recorded; a recorded one may be null."""
_GZIP: Final = b"\x1f\x8b"


@dataclass(slots=True)
class Arrival:
    """One arrival of a message at the consumer.

    Args:
        at: seconds since 1970.
        outcome: the verdict's.
        key: empty if it could not be read.
        identity: canonical; empty if it could not be read.
        version: None if it has none.
        print_: fingerprint of its body.
        message_id: the broker's or the producer's; empty without one.
        attempt: 1 for the first delivery.
        published: seconds since 1970; None if unknown.
        keys: the broker's keys.
        code: a dead letter's reason.
        tried: the handler ran.
        parked: it came from the ledger.
        headers: those that were recorded.
        body: as decoded, masked; NO_BODY if it was not recorded.
    """

    at: float
    outcome: str
    key: str
    identity: str
    version: int | None
    print_: str
    message_id: str
    attempt: int
    published: float | None
    keys: tuple[str, ...]
    code: str
    tried: bool
    parked: bool
    headers: Mapping[str, str]
    body: Any


@dataclass(slots=True)
class Recording:
    """A recording.

    Args:
        header: its first line.
        arrivals: in order of their times; those of a process in the order of its lines.
        whole: it has its last line.
        lost: arrivals that are not in it, because a process had no room for them.
    """

    header: Mapping[str, Any]
    arrivals: list[Arrival]
    whole: bool
    lost: int


def read_recording(file: Path) -> Recording:
    """Return the recording of a file, which may be compressed.

    Raises:
        ConfigError: it is none; says which line is wrong.
    """
    lines = _lines(file)
    header = _header(file, next(lines, None))
    arrivals: list[Arrival] = []
    whole, lost = False, 0
    for number, line in lines:
        if not line.endswith("\n"):
            break  # the end of a file that was cut off
        found = _object(file, number, line)
        if "end" in found:
            whole, lost = True, int(found.get("lost", 0))
            continue
        try:
            arrivals.append(_arrival(found, header))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _wrong(file, number, f"is not an arrival ({type(error).__name__}: {error})") from error
    arrivals.sort(key=lambda arrival: arrival.at)
    return Recording(header, arrivals, whole, lost)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines; the end of a compressed file may be cut off."""
    try:
        with _opened(file) as stream:
            try:
                yield from enumerate(stream, 1)
            except (EOFError, zlib.error):
                return
            except UnicodeDecodeError as error:
                raise ConfigError([f"{file} is not a recording: it is not text"]) from error
    except OSError as error:
        raise ConfigError([f"{file} cannot be read: {error.strerror or error}"]) from error


def _opened(file: Path) -> IO[str]:
    with file.open("rb") as raw:
        compressed = raw.read(2) == _GZIP
    return gzip.open(file, "rt", encoding="utf-8") if compressed else file.open(encoding="utf-8")


def _header(file: Path, first: tuple[int, str] | None) -> Mapping[str, Any]:
    try:
        found = json.loads(first[1]) if first is not None else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or MAGIC not in found:
        raise ConfigError([f"{file} is not a recording: `oncemq record -o {file.name}` makes one"])
    if found[MAGIC] != FORMAT:
        raise ConfigError(
            [
                f"{file} has format {found[MAGIC]!r}, and this OnceMQ reads {FORMAT}: use the OnceMQ that recorded it"
            ]
        )
    declared = found.get("declared")
    if not isinstance(declared, dict) or not all(
        isinstance(found.get(name), str) for name in ("app", "consumer", "scope")
    ):
        raise _wrong(file, 1, "does not say what was recorded")
    return found


def _object(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _wrong(file, number, "is not JSON") from error
    if not isinstance(found, dict):
        raise _wrong(file, number, "is not a JSON object")
    return found


def _arrival(found: dict[str, Any], header: Mapping[str, Any]) -> Arrival:
    del header
    return Arrival(
        float(found["at"]),
        str(found["outcome"]),
        str(found.get("key", "")),
        str(found.get("identity", "")),
        found.get("version"),
        str(found.get("print", "")),
        str(found.get("id", "")),
        int(found.get("attempt", 1)),
        found.get("published"),
        tuple(found.get("keys", ())),
        str(found.get("code", "")),
        bool(found.get("tried")),
        bool(found.get("parked")),
        dict(found["headers"]) if "headers" in found else {},
        found.get("body", NO_BODY),
    )


def _wrong(file: Path, number: int, what: str) -> ConfigError:
    return ConfigError([f"{file}:{number}: the line {what}; the file is damaged, or was edited"])
