"""Worker process of `oncemq run`, from its start to its exit code."""

import gc
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import structlog
from sqlalchemy import exc

from oncemq.app_process import run_loaded
from oncemq.cli.exit_codes import FAILED, HARD_LIMIT, exit_code
from oncemq.cli.main import show_error
from oncemq.common.clock import Clock
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.engine.crash.suspects import SuspectBook, collect, discard
from oncemq.engine.supervision.child import Reports
from oncemq.engine.supervisor import Death
from oncemq.errors import OnceMQError
from oncemq.observe.first_progress import FirstProgress, MessageCount
from oncemq.observe.health import readiness
from oncemq.observe.process_group import socket_of
from oncemq.observe.state import StateSource

_OBJECTS_BETWEEN_COLLECTIONS = 20_000


@dataclass(frozen=True, slots=True)
class Worker:
    """Loads the app and runs it; carries nothing that cannot be pickled.

    Args:
        files: the app's files, which it loads itself.
        until_idle: end when no message has arrived for so long.
        deadline: end after so long in any case.
        sockets: folder in which each process answers the supervisor about its metrics and health; None = they are off.
        texts: of the files, so that every process runs the text that was checked; None = each reads them.
    """

    files: tuple[Path, ...]
    until_idle: timedelta | None
    deadline: timedelta | None = None
    sockets: str | None = None
    texts: Mapping[Path, bytes] | None = field(default=None, repr=False)

    def __call__(self, index: int, reports: Reports) -> int:
        """Run as worker process number `index`; returns its exit code.

        Args:
            index: counted from 0.
            reports: tells the supervisor how far this process is.
        """
        try:
            loaded = load(self.files, texts=self.texts)
            _collect_seldom()
            code = run_loaded(
                loaded,
                until_idle=self.until_idle,
                deadline=self.deadline,
                others=[FirstProgress(reports.applied), MessageCount(reports.count)],
                answers_on=None if self.sockets is None else socket_of(self.sockets, index),
                supervised=True,
                process=index,
                watched=lambda state: reports.watch(lambda: is_ready(state, loaded.plan.clock)),
            )
        except OnceMQError as error:
            show_error(error)
            return exit_code(error)
        if code != 0:
            _leave(code)
        return code


def is_ready(state: StateSource, clock: Clock) -> bool:
    """Return whether every consumer of this process is subscribed and does its work."""
    return readiness(state(), clock.monotonic()).ok


def _collect_seldom() -> None:
    """Configure the garbage collector to skip start-up objects, and to scan whole units instead of parts.

    A unit keeps some thousands of objects until its commit. Scanning them again and again, with every imported module,
    took a tenth of the processor time where the handler uses the ORM.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)


class Mourner:
    """Handles deaths of worker processes: logs them, and marks the messages that ran in them as suspects.

    Args:
        loaded: the app; its database is connected only for this.
    """

    def __init__(self, loaded: LoadedApp) -> None:
        self._plan = loaded.plan
        self._log = structlog.get_logger("oncemq")

    def __call__(self, death: Death) -> None:
        """Handle one death; if the database is away, the next process that starts does it."""
        self._log.warning(
            "worker process ended", process=death.index, exit_code=death.code, meaning=meaning(death)
        )
        state = self._plan.state
        if state is None:
            return
        if death.ordered:
            discard(state, death.pid)
            return
        try:
            crashes = collect(state, SuspectBook(self._plan.engine, state))
        except (exc.SQLAlchemyError, OSError) as error:
            self._log.warning(
                "messages of a dead worker process are not known yet",
                error=f"{type(error).__name__}: {error}",
            )
            return
        finally:
            for engine in self._plan.engines:
                engine.dispose()
        for crash in crashes:
            for key, identity in crash.suspects:
                self._log.warning(
                    "worker process died while this message ran"
                    if crash.known
                    else "worker process may have died of this message",
                    consumer=crash.consumer.partition(".")[2],
                    key=key,
                    identity=identity,
                )


def tell_silence(index: int, pid: int, seconds: float) -> None:
    """Log that a worker process has not responded for so many seconds."""
    structlog.get_logger("oncemq").warning(
        "worker process does not respond", process=index, pid=pid, silent_for=f"{seconds:.0f}s"
    )


def meaning(death: Death) -> str:
    """Return the meaning of an exit code in words."""
    if death.code == HARD_LIMIT:
        return "a handler exceeded its hard time limit"
    if death.silent:
        return "it was stopped by a signal" if death.ordered else "it did not respond and was killed"
    if death.lost:
        return "it ended in order because the process that had forked it ended"
    if death.ordered:
        return "it was stopped at once"
    return f"killed by signal {-death.code}" if death.code < 0 else "see the lines above"


def _leave(code: int) -> None:
    """End the process although a thread may never end; unsettled messages are redelivered."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code > 0 else FAILED)
