"""Runs a command, and beside it others one after the other; shows all that they said and how many tests passed.

    python tests/beside.py [--until 1763800000] [--beside COMMAND]... COMMAND

The command's own output is shown as it comes, that of the others when all have ended. The last line counts the tests of
all of them, in pytest's words. Whichever fails, or says nothing of tests, fails the run.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time

COUNT = re.compile(r"(\d+) (failed|passed|skipped|errors?|xfailed|xpassed|not run|flaky)\b")
CLOSING = re.compile(r"\d+ (failed|passed|error|skipped).* in \d+(\.\d+)?s\b")
ORDER = ("failed", "error", "passed", "skipped", "xfailed", "xpassed", "not run", "flaky")
SECONDS_TO_STOP = 120.0
"""Beyond the time that the commands have been told themselves."""


class Part:
    """One command.

    Args:
        command: a line for the shell.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.code: int | None = None
        self.counts: Counter[str] = Counter()
        self.process: subprocess.Popen[str] | None = None

    def lines(self) -> Iterator[str]:
        """Run it and yield what it says, line by line; its end is known afterwards."""
        closing = ""
        # A session of its own, so that all of it can be killed; and no shell between, so that make is told to end.
        with subprocess.Popen(
            f"exec {self.command}",
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as self.process:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                closing = line if CLOSING.search(line) else closing
                yield line
        self.code = self.process.returncode
        self.counts.update(counted(closing))

    @property
    def failed(self) -> bool:
        """Whether it failed, or never said how many tests passed."""
        return self.code != 0 or not self.counts

    def stop(self, how: signal.Signals) -> None:
        """Tell it to end; SIGKILL ends its children, too."""
        if self.process is not None and self.process.poll() is None:
            if how is signal.SIGKILL:
                os.killpg(self.process.pid, how)
            else:
                self.process.send_signal(how)


def counted(line: str) -> Counter[str]:
    """Return how many tests did what, by pytest's closing line."""
    counts: Counter[str] = Counter()
    for number, what in COUNT.findall(line):
        counts["error" if what == "errors" else what] += int(number)
    return +counts


class Run:
    """A command and those beside it.

    Args:
        main: whose output is shown as it comes.
        others: run one after the other; none is left out because another failed.
    """

    def __init__(self, main: str, others: Sequence[str]) -> None:
        self.main = Part(main)
        self.others = [Part(command) for command in others]
        self.stopped = Event()
        self.ended = Event()

    def play(self, folder: Path, seconds: float | None, grace: float) -> int:
        """Run everything, after so many seconds tell it to end, and `grace` seconds later kill it; returns the exit code."""
        began = monotonic()
        files = [folder / str(number) for number in range(len(self.others))]
        lane = Thread(target=self._play_others, args=(files,))
        watch = Thread(target=self._watch, args=(seconds, grace), daemon=True)
        lane.start()
        watch.start()
        # The last line waits for what the others have to say.
        last = ""
        for line in self.main.lines():
            sys.stdout.write(last)
            sys.stdout.flush()
            last = line
        lane.join()
        self.ended.set()
        for part, file in zip(self.others, files, strict=True):
            print(f"\n{f' beside: {part.command} ':=^100}")  # noqa: T201
            sys.stdout.write(file.read_text() if file.exists() else "did not run\n")
        sys.stdout.write(last)
        self._close(monotonic() - began)
        return 1 if any(part.failed for part in (self.main, *self.others)) else 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Tell all to end, and begin nothing more."""
        self.stopped.set()
        for part in (self.main, *self.others):
            part.stop(how)

    def _play_others(self, files: Sequence[Path]) -> None:
        for part, file in zip(self.others, files, strict=True):
            if self.stopped.is_set():
                return
            with file.open("w") as said:
                for line in part.lines():
                    said.write(line)
                    said.flush()

    def _watch(self, seconds: float | None, grace: float) -> None:
        self.stopped.wait(seconds)
        self.stop()
        self.ended.wait(grace)
        self.stop(signal.SIGKILL)

    def _close(self, took: float) -> None:
        parts = (self.main, *self.others)
        total = sum((part.counts for part in parts), Counter[str]())
        for part in parts:
            # Not every failure is a test's: an environment that cannot be made has no tests.
            if part.failed and not part.counts["failed"] + part.counts["error"]:
                print(f"failed with exit code {part.code}: {part.command}")  # noqa: T201
                total["error"] += 1
        counts = ", ".join(f"{total[what]} {what}" for what in ORDER if total[what])
        minutes, left = divmod(int(took), 60)
        clock = f"{minutes // 60}:{minutes % 60:02}:{left:02}"
        print(f"{f' {counts} in {took:.2f}s ({clock}) ':=^100}", flush=True)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", type=float, help="when everything must be done, in seconds since 1970")
    parser.add_argument(
        "--beside", action="append", default=[], help="a command that runs beside; repeatable"
    )
    parser.add_argument(
        "--grace", type=float, default=SECONDS_TO_STOP, help="seconds until what was told to end is killed"
    )
    parser.add_argument("command", help="the command whose output is shown as it comes")
    given = parser.parse_args()
    run = Run(given.command, given.beside)
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: run.stop())
    left = None if given.until is None else max(0.0, given.until - time()) + given.grace
    with tempfile.TemporaryDirectory(prefix="oncemq-beside-") as name:
        sys.exit(run.play(Path(name), left, given.grace))
