"""Reloads the app at SIGHUP, or when an operator asks all processes: checks the new text, compares, and has the supervisor replace its worker processes."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import structlog

from oncemq.cli.reload import turns
from oncemq.cli.reload.candidate import Candidate, check
from oncemq.cli.reload.turns import Turns
from oncemq.cli.worker import Worker
from oncemq.config import pinned
from oncemq.engine.supervisor import Supervisor
from oncemq.errors import ConfigError
from oncemq.ledger.records.configurations import GIVEN_UP, REFUSED, START, STARTED, TAKEN_OVER
from oncemq.observe.process_group import ProcessGroup
from oncemq.operate.configuration.history import History, Occasion, version

_NOT_READY = "the first new worker process did not become ready, or a stop came first: see the lines above"


class Reloader:
    """Replaces the configuration that runs by that of the files, one reload at a time.

    Args:
        worker: what the worker processes run; its texts are those of the files at the start.
        supervisor: of the worker processes.
        candidate: the configuration that runs.
        group: shows on `/status` what runs; None = it is off.
        history: of the app's configurations; None = the app has no database.
        queue: of the processes that an operator asks; None = the app has no database.
    """

    def __init__(
        self,
        worker: Worker,
        supervisor: Supervisor,
        candidate: Candidate,
        group: ProcessGroup | None,
        history: History | None = None,
        queue: Turns | None = None,
    ) -> None:
        self._worker = worker
        self._supervisor = supervisor
        self._running = candidate
        self._group = group
        self._history = history
        self._turns = queue
        self._asked: SimpleQueue[Occasion] = SimpleQueue()
        self._log = structlog.get_logger("oncemq")
        self.version = version(worker.texts)
        self._version = self._described(START)
        self._show(None)

    def ask(self, occasion: Occasion) -> None:
        """Reload; from any thread and from signal handlers. Several that come meanwhile are one.

        Args:
            occasion: who asks, and how.
        """
        self._asked.put(occasion)

    def start(self) -> None:
        """Obey in a thread of its own."""
        threading.Thread(target=self._obey, name="oncemq-reload", daemon=True).start()

    def _obey(self) -> None:
        self._note(self._worker.texts or {}, Occasion(START), STARTED)
        while True:
            occasion = self._asked.get()
            at_once = occasion.request is None
            with suppress(Empty):
                while True:
                    later = self._asked.get_nowait()
                    at_once = at_once or later.request is None
                    # A request in the ledger waits for its answer, and that to a later one is one to those before it.
                    occasion = max(occasion, later, key=lambda each: each.request or 0)
            try:
                self._reload(occasion, None if at_once else self._turns)
            except Exception as error:
                self._log.exception("reload failed")
                self._refuse({}, occasion, [f"{type(error).__name__}: {error}"])

    def _reload(self, occasion: Occasion, turn: Turns | None) -> None:
        by = str(occasion)
        files = self._worker.files
        try:
            texts = pinned(files)
        except ConfigError as error:
            texts, found = {}, Candidate(tuple(map(str, error.problems)))
        else:
            found = check(files, texts)
        problems = [*found.problems] or found.obstacles(self._running)
        if problems:
            self._log.error("reload refused; nothing has changed", by=by, problems=problems)
            self._refuse(texts, occasion, problems)
            return
        if turn is not None and not turn.take(self._overtaken):
            if self._overtaken():
                self._asked.put(occasion)  # with what came meanwhile, for which the files are read again
            return
        changed = found.changed_from(self._running)
        worker = replace(self._worker, texts=texts)
        new = version(texts)
        self._log.info("reload begins", by=by, version=new, before=self.version, changed=changed)
        if not self._replaced(worker, turn):
            self._log.error("reload given up; the configuration before it runs", by=by, version=new)
            self._refuse(texts, occasion, [_NOT_READY], GIVEN_UP)
            return
        self._worker, self._running, self.version = worker, found, new
        self._version = self._described(by)
        self._log.info("reload done", by=by, version=new, changed=changed)
        self._show(self._outcome(by, []))
        self._note(texts, occasion, TAKEN_OVER)

    def _overtaken(self) -> bool:
        """Return whether another reload was asked for meanwhile."""
        return not self._asked.empty()

    def _replaced(self, worker: Worker, turn: Turns | None) -> bool:
        """Have the worker processes replaced; returns False if it was given up."""
        ends: SimpleQueue[bool] = SimpleQueue()
        self._supervisor.replace(worker, ends.put)
        if turn is None:
            return ends.get()
        try:
            while True:
                with suppress(Empty):
                    return ends.get(timeout=turns.KEEP_EVERY)
                turn.keep()
        finally:
            turn.end()

    def _refuse(
        self, texts: Mapping[Path, bytes], occasion: Occasion, problems: list[str], outcome: str = REFUSED
    ) -> None:
        self._show(self._outcome(str(occasion), problems))
        self._note(texts, occasion, outcome, problems)

    def _note(
        self, texts: Mapping[Path, bytes], occasion: Occasion, outcome: str, problems: Sequence[str] = ()
    ) -> None:
        if self._history is None:
            return
        try:
            self._history.note(texts, occasion, outcome, problems)
        except Exception as error:  # must not keep a reload from being made, or the next one from being heard
            self._log.warning(
                "the history of configurations was not written", error=f"{type(error).__name__}: {error}"
            )

    def _described(self, by: str) -> dict[str, Any]:
        return {"version": self.version, "since": _now(), "by": by}

    def _outcome(self, by: str, problems: list[str]) -> dict[str, Any]:
        return {"at": _now(), "by": by, "ok": not problems, "problems": problems}

    def _show(self, last: Mapping[str, Any] | None) -> None:
        if self._group is not None:
            self._group.show_configuration({**self._version, "last_reload": last})


@contextmanager
def on_hangup(reloader: Reloader) -> Iterator[None]:
    """Reload at SIGHUP; where the terminal has gone, it ends the app, and where it is ignored (`nohup`) it stays so."""
    number = signal.SIGHUP
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(number) is signal.SIG_IGN
    ):
        yield
        return
    in_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()

    def obey(*_: object) -> None:
        if in_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            reloader.ask(Occasion("SIGHUP"))

    previous = signal.signal(number, obey)
    try:
        yield
    finally:
        signal.signal(number, previous)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
