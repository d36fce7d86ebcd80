"""Turns flight recorders of dead processes into suspects: in the ledger, or in a file without a database."""

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy import Engine

from oncemq.common.private_files import open_private, state_folder
from oncemq.engine.crash import process_lock as presence
from oncemq.engine.crash.flight_recorder import Crash, Recorder, read_crash
from oncemq.engine.crash.process_lock import only_one
from oncemq.ledger.records import suspects
from oncemq.observe.observers import Observers

_SUFFIX = ".recorder"
_ENDING_WITHIN = 0.5
"""Seconds that a process may still take to end after its broker has given its messages to others."""
_LOOK_EVERY = 0.01


def recorder_path(state: Path, process: str, scope: str, worker: int) -> Path:
    """Return the file of worker number `worker` of the consumer `scope`, in the process of that name."""
    return state / f"{quote(scope, safe='')}@{process}@{worker}{_SUFFIX}"


def open_recorder(
    state: Path, process: str, scope: str, worker: int, kind: type[Recorder] = Recorder
) -> Recorder:
    """Return a recorder that `collect` finds after the process of that name has died."""
    return kind(recorder_path(state, process, scope, worker))


class SuspectBook:
    """How often processes died while a message was running, by consumer and identity.

    Args:
        engine: the app's database; None stores it in a file under `state`.
        state: the folder of recorders.
    """

    def __init__(self, engine: Engine | None, state: Path) -> None:
        self._engine = engine
        self._file = state / "suspects.json"

    def load(self, scope: str) -> Mapping[str, int]:
        """Return crashes by identity; 0 for a message that is only a possible cause.

        Those that a hard time limit ended are counted a second time, by `overruns(identity)`.
        """
        if self._engine is None:
            return self._read().get(scope, {})
        with self._engine.connect() as connection:
            return suspects.load(connection, scope)

    def note(self, crash: Crash) -> None:
        """Charge the message at fault; if it is unknown, put everything that ran under suspicion."""
        weight = 1 if crash.known else 0
        counted = list(crash.suspects)
        if crash.known and crash.overrun:
            counted += [(key, suspects.overruns(identity)) for key, identity in crash.suspects]
        if self._engine is None:
            with only_one(self._file.parent, "suspects"):
                book = self._read()
                own = book.setdefault(crash.consumer, {})
                for _, identity in counted:
                    own[identity] = own.get(identity, 0) + weight
                self._write(book)
            return
        with self._engine.begin() as connection:
            for key, identity in counted:
                suspects.charge(connection, crash.consumer, key, identity, crashes=weight)

    def clear(self, scope: str, identities: Collection[str]) -> None:
        """Forget messages that are finished."""
        if self._engine is None:
            with only_one(self._file.parent, "suspects"):
                book = self._read()
                own = book.get(scope, {})
                for name in frozenset().union(*map(suspects.names_of, identities)):
                    own.pop(name, None)
                self._write(book)
            return
        with self._engine.begin() as connection:
            suspects.clear(connection, scope, identities)

    def _read(self) -> dict[str, dict[str, int]]:
        with suppress(FileNotFoundError, ValueError):
            found: dict[str, dict[str, int]] = json.loads(self._file.read_text())
            return found
        return {}

    def _write(self, book: Mapping[str, Mapping[str, int]]) -> None:
        state_folder(self._file.parent)
        fresh = self._file.with_suffix(f".{os.getpid()}")
        with os.fdopen(open_private(fresh), "w") as file:
            file.truncate()
            file.write(json.dumps(book))
        fresh.replace(self._file)


def collect(state: Path, book: SuspectBook) -> list[Crash]:
    """Read the recorders of dead processes, record the suspects, and remove the files.

    Several messages may have been running when a process died. If one was a suspect before, it is charged;
    else, if only one was running, that one; else none: all become suspects, and run alone from then on.
    """
    if not state.is_dir():
        return []
    found: list[Crash] = []
    # Two readers would charge twice, or each see only a part of one process's work.
    with only_one(state, "collect"):
        for process, paths in _orphans(state).items():
            found += _charge([crash for path, scope in paths if (crash := read_crash(path, scope))], book)
            _remove(state, process, paths)
    return found


def collect_for(
    state: Path, book: SuspectBook, process: str, scope: str, identities: Collection[str]
) -> list[Crash]:
    """Collect before these messages run, and wait a moment for another process that seems to run one of them.

    It may be ending: brokers see a broken connection earlier than the system gives up the last lock of a process.

    Args:
        state: the folder of recorders.
        book: where suspects are recorded.
        process: the name of this process.
        scope: the consumer.
        identities: of the messages.
    """
    found, end = collect(state, book), time.monotonic() + _ENDING_WITHIN
    while _runs_elsewhere(state, process, scope, identities) and time.monotonic() < end:
        time.sleep(_LOOK_EVERY)
        found += collect(state, book)
    return found


def _runs_elsewhere(state: Path, process: str, scope: str, identities: Collection[str]) -> bool:
    for path in state.glob(f"*{_SUFFIX}"):
        of, _, rest = path.name.removesuffix(_SUFFIX).partition("@")
        if unquote(of) != scope or rest.partition("@")[0] == process:
            continue
        crash = read_crash(path, scope)
        if crash is not None and any(identity in identities for _, identity in crash.suspects):
            return True
    return False


def tell(crashes: Iterable[Crash], book: SuspectBook, observers: Observers) -> None:
    """Report every message that is under suspicion from now on."""
    for crash in crashes:
        counts = book.load(crash.consumer)
        for key, identity in crash.suspects:
            observers.crash_suspect(
                crash.consumer.partition(".")[2], key=key, identity=identity, crashes=counts.get(identity, 0)
            )


def discard(state: Path, pid: int) -> None:
    """Remove the recorders of a process that was ended on purpose: no message is at fault."""
    if not state.is_dir():
        return
    with only_one(state, "collect"):
        for process, paths in _orphans(state).items():
            if process.partition("-")[0] == str(pid):
                _remove(state, process, paths)


def _remove(state: Path, process: str, paths: list[tuple[Path, str]]) -> None:
    for path, _ in paths:
        path.unlink(missing_ok=True)
    presence.forget(state, process)


def _charge(crashes: list[Crash], book: SuspectBook) -> list[Crash]:
    known = [crash for crash in crashes if crash.known]
    before = [crash for crash in known if crash.suspects[0][1] in book.load(crash.consumer)]
    charged = before or (known if len(known) == 1 else [])
    judged = [replace(crash, known=crash in charged) for crash in crashes]
    for crash in judged:
        book.note(crash)
    return judged


def _orphans(state: Path) -> dict[str, list[tuple[Path, str]]]:
    """Return recorders and their scopes by the dead process that wrote them."""
    found: dict[str, list[tuple[Path, str]]] = {name: [] for name in presence.names(state)}
    for path in sorted(state.glob(f"*{_SUFFIX}")):
        scope, _, rest = path.name.removesuffix(_SUFFIX).partition("@")
        found.setdefault(rest.partition("@")[0], []).append((path, unquote(scope)))
    return {process: paths for process, paths in found.items() if not presence.lives(state, process)}
