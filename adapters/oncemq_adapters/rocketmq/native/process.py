"""The process with librocketmq, as its parent sees it: started by spawning, ended by SIGKILL."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import structlog

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.librocketmq import frames

START_WITHIN = 60.0
"""Seconds, on a machine that has much else to do."""

FLUSHED_WITHIN = 1.0


class LibraryProcess:
    """One process; it ends by itself when this one does, on Linux also when the thread does that makes this object.

    Args:
        on_message: called, on a thread of our own, with a message for which a callback waits.
        on_reached: called there with the position of the callbacks: our number of a queue, and an offset in it.
        on_end: called when the process is gone.
    """

    def __init__(
        self,
        on_message: Callable[[frames.Identity], None],
        on_reached: Callable[[Iterable[tuple[int, int]]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._on_message = on_message
        self._on_reached = on_reached
        self._on_end = on_end
        self._started = Event()
        self._flushed = Event()
        self._why = ""
        self._unheard = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncemq_adapters.librocketmq"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A signal from the terminal is for the parent, which knows what is to be finished first.
            start_new_session=True,
        )
        self._writer = frames.Writer(self._process.stdin.raw)  # type: ignore[union-attr]
        self._reader = Thread(target=self._read, name="oncemq-librocketmq", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it runs, and its output is read."""
        return self._process.poll() is None and not self._unheard

    @property
    def end(self) -> str:
        """How it ended, in words; when it is gone."""
        code = self._process.returncode
        if code is None or code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"signal {-code}"

    def start(self, order: Mapping[str, Any]) -> None:
        """Have it consume.

        Raises:
            BrokerUnavailable: it did not start; says why.
        """
        self._reader.start()
        # Through the pipe: passwords do not belong on a command line.
        self._say(order)
        if not self._started.wait(START_WITHIN) or self._why:
            self.kill()
            reason = self._why or f"it said nothing for {START_WITHIN:.0f} s"
            raise BrokerUnavailable(f"the process with librocketmq did not start: {reason}")

    def finished(self, messages: Sequence[tuple[str, int, int, int, str, int]]) -> None:
        """Let the callbacks of messages return, now or when they come; a process that is gone needs no word.

        Args:
            messages: the identity of each, and our number of its queue.
        """
        self._say({"kind": frames.FINISHED, "messages": messages})

    def answer(self, message: frames.Identity) -> None:
        """Let a callback return that waits."""
        self._say({"kind": frames.ANSWERED, "message": message})

    def _say(self, frame: frames.Frame) -> None:
        with suppress(OSError, ValueError):
            self._writer.write(frame)

    def freeze(self) -> None:
        """Have it say nothing more, to anybody; `kill` follows – or Linux kills it, should we die before.

        What the library has said before is on its way then, and not kept back by the kernel.
        """
        if self._started.is_set():
            self._say({"kind": frames.FLUSH})
            self._flushed.wait(FLUSHED_WITHIN)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it; returns when it is gone and no callback follows. Its messages go to the remaining members."""
        self._process.kill()
        self._process.wait()
        if self._reader.ident is not None:
            self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _read(self) -> None:
        try:
            while (frame := frames.read(self._process.stdout)) is not None:  # type: ignore[arg-type]
                if frame["kind"] == frames.MESSAGE:
                    topic, number, offset, stored_at, unique_id = frame["message"]
                    self._on_message((topic, number, offset, stored_at, unique_id))
                    continue
                if frame["kind"] == frames.REACHED:
                    self._on_reached(frame["queues"])
                    continue
                if frame["kind"] == frames.FLUSHED:
                    self._flushed.set()
                    continue
                self._why = str(frame.get("why", ""))
                self._started.set()
        except Exception:
            structlog.get_logger("oncemq").exception("reading from librocketmq failed")
        finally:
            self._unheard = True
            self._flushed.set()
            if not self._started.is_set():
                self._why = "it ended at once"
                self._started.set()
            self._on_end()
