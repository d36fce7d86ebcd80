"""When a process that was asked to reload replaces its workers: in its turn, or at once."""

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from oncemq.cli.reload import reloader
from oncemq.cli.reload.candidate import Candidate
from oncemq.cli.reload.reloader import Reloader
from oncemq.cli.worker import Worker
from oncemq.operate.configuration.history import Occasion
from support.apps.program import eventually

FILE = Path("app.yaml")


class Turn:
    """Stands for the turns in the ledger: it comes when the test says so."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps
        self._free = threading.Event()
        self._pause = threading.Event()

    def take(self, overtaken: Callable[[], bool]) -> bool:
        """Wait until it comes."""
        self._steps.append("waits")
        while not self._free.is_set():
            if overtaken():
                return False
            self._pause.wait(0.01)
        self._steps.append("has its turn")
        return True

    def come(self) -> None:
        """Let it come."""
        self._free.set()

    def keep(self) -> None:
        """Nothing ends it here."""

    def end(self) -> None:
        """Note it."""
        self._steps.append("ends its turn")


class Replacing:
    """Stands for the supervisor: replaces at once."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def replace(self, worker: Worker, done: Callable[[bool], None]) -> None:
        """Note the text."""
        assert worker.texts is not None
        self._steps.append(f"runs {worker.texts[FILE].decode()}")
        done(True)


class Process:
    """A process whose file says how often it was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.turn = Turn(self.steps)
        self._texts = SimpleQueue[bytes]()
        for number in range(1, 10):
            self._texts.put(b"text %d" % number)
        monkeypatch.setattr(reloader, "pinned", lambda _files: {FILE: self._texts.get_nowait()})
        monkeypatch.setattr(reloader, "check", lambda *_: Candidate())
        worker: Any = Worker((FILE,), None, None, None, {FILE: b"text 0"})
        made: Any = Reloader
        self.reloader = made(worker, Replacing(self.steps), Candidate(), None, None, self.turn)
        self.reloader.start()

    def waits(self, times: int = 1) -> None:
        """Wait until it waits for its turn."""
        eventually(lambda: self.steps.count("waits") == times, "it waits", 10)

    def did(self, steps: list[str]) -> None:
        """Wait until it has done all of it, and nothing else."""
        eventually(lambda: len(self.steps) >= len(steps), "its steps", said=lambda: str(self.steps))
        assert self.steps == steps


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    """It runs."""
    return Process(monkeypatch)


def _request(number: int) -> Occasion:
    return Occasion("oncemq reload", "alice", "", number)


def test_a_request_in_the_ledger_is_obeyed_in_turn(process: Process) -> None:
    """The text that was checked runs, and the turn ends when it does."""
    process.reloader.ask(_request(1))
    process.waits()
    process.turn.come()
    process.did(["waits", "has its turn", "runs text 1", "ends its turn"])


def test_a_signal_is_obeyed_at_once(process: Process) -> None:
    """Also by a process that waits for its turn, which has obeyed the request with it."""
    process.reloader.ask(_request(1))
    process.waits()
    process.reloader.ask(Occasion("SIGHUP"))
    process.did(["waits", "runs text 2"])


def test_a_process_that_waits_reads_its_files_again_for_a_later_request(process: Process) -> None:
    """It has one turn for both."""
    process.reloader.ask(_request(1))
    process.waits()
    process.reloader.ask(_request(2))
    process.waits(2)
    process.turn.come()
    process.did(["waits", "waits", "has its turn", "runs text 2", "ends its turn"])
