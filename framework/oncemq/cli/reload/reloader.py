"""Reloads the app at SIGHUP: checks the new text, compares, and has the supervisor replace its worker processes."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import structlog

from oncemq.cli.reload.candidate import Candidate, check
from oncemq.cli.worker import Worker
from oncemq.config import pinned
from oncemq.engine.supervisor import Supervisor
from oncemq.errors import ConfigError
from oncemq.observe.process_group import ProcessGroup

_NOT_READY = "the first new worker process did not become ready, or a stop came first: see the lines above"


class Reloader:
    """Replaces the configuration that runs by that of the files, one reload at a time.

    Args:
        worker: what the worker processes run; its texts are those of the files at the start.
        supervisor: of the worker processes.
        candidate: the configuration that runs.
        group: shows on `/status` what runs; None = it is off.
    """

    def __init__(
        self, worker: Worker, supervisor: Supervisor, candidate: Candidate, group: ProcessGroup | None
    ) -> None:
        self._worker = worker
        self._supervisor = supervisor
        self._running = candidate
        self._group = group
        self._asked: SimpleQueue[str] = SimpleQueue()
        self._log = structlog.get_logger("oncemq")
        self._version = self._described("start")
        self._show(None)

    def ask(self, by: str) -> None:
        """Reload; from any thread and from signal handlers. Several that come meanwhile are one.

        Args:
            by: who asks, for the log.
        """
        self._asked.put(by)

    def start(self) -> None:
        """Obey in a thread of its own."""
        threading.Thread(target=self._obey, name="oncemq-reload", daemon=True).start()

    def _obey(self) -> None:
        while True:
            by = self._asked.get()
            with suppress(Empty):
                while True:
                    by = self._asked.get_nowait()
            try:
                self._reload(by)
            except Exception as error:
                self._log.exception("reload failed")
                self._show(self._outcome(by, [f"{type(error).__name__}: {error}"]))

    def _reload(self, by: str) -> None:
        files = self._worker.files
        try:
            texts = pinned(files)
            found = check(files, texts)
        except ConfigError as error:
            texts, found = {}, Candidate(tuple(map(str, error.problems)))
        problems = [*found.problems] or found.obstacles(self._running)
        if problems:
            self._log.error("reload refused; nothing has changed", by=by, problems=problems)
            self._show(self._outcome(by, problems))
            return
        changed = found.changed_from(self._running)
        worker = replace(self._worker, texts=texts)
        new = version(texts)
        self._log.info(
            "reload begins", by=by, version=new, before=version(self._worker.texts), changed=changed
        )
        ends: SimpleQueue[bool] = SimpleQueue()
        self._supervisor.replace(worker, ends.put)
        if not ends.get():
            self._log.error("reload given up; the configuration before it runs", by=by, version=new)
            self._show(self._outcome(by, [_NOT_READY]))
            return
        self._worker, self._running = worker, found
        self._version = self._described(by)
        self._log.info("reload done", by=by, version=new, changed=changed)
        self._show(self._outcome(by, []))

    def _described(self, by: str) -> dict[str, Any]:
        return {"version": version(self._worker.texts), "since": _now(), "by": by}

    def _outcome(self, by: str, problems: list[str]) -> dict[str, Any]:
        return {"at": _now(), "by": by, "ok": not problems, "problems": problems}

    def _show(self, last: Mapping[str, Any] | None) -> None:
        if self._group is not None:
            self._group.show_configuration({**self._version, "last_reload": last})


def version(texts: Mapping[Path, bytes] | None) -> str:
    """Return the name of a configuration's text: the same text has the same one in every process and on every machine."""
    if not texts:
        return "in Python"
    return sha256(b"".join(b"%d:%b" % (len(text), text) for text in texts.values())).hexdigest()[:12]


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
            reloader.ask("SIGHUP")

    previous = signal.signal(number, obey)
    reloader.start()
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
