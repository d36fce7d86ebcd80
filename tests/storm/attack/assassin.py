"""Keeps consumers running and does them harm: kills them, freezes them for a while, asks them to leave."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread

from storm.attack.nursery import Child
from storm.attack.stage import Stage, wait_for

Harm = Callable[[Child], str]
"""Returns what is known to have happened; empty if nothing, because the child had ended by itself."""

FROZEN = 3.0
"""Seconds."""


def kill(child: Child) -> str:
    """SIGKILL."""
    return "consumer killed" if child.kill() == -signal.SIGKILL else ""


def leave(child: Child) -> str:
    """SIGTERM: what runs is finished, the rest is left to others; a newcomer takes the place."""
    return "consumer left" if child.drain(40) == 0 else ""


def freeze(child: Child) -> str:
    """SIGSTOP for a while: its connections stay open, its transaction too."""
    if not is_frozen(child):
        return ""
    Event().wait(FROZEN)
    return "consumer frozen" if child.send(signal.SIGCONT) else ""


def is_frozen(child: Child) -> bool:
    """SIGSTOP it; returns whether it is blocked."""
    if not child.send(signal.SIGSTOP):
        return False
    status = Path(f"/proc/{child.pid}/stat")
    try:
        wait_for(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "a process to stop", 10)
    except FileNotFoundError:
        return False
    return True


class Assassin:
    """Keeps consumers running, and harms one of them at every look.

    Args:
        stage: starts them.
        count: how many run at once.
        every: seconds between two looks at them.
        harms: done in turn; none = only replace those that died by themselves.
        at_work_only: harm none that has not begun a handler: on a slow machine all would die before that.
        more: for each consumer.

    Attributes:
        stage: the same.
        deaths: how often consumers have ended with which code.
    """

    def __init__(
        self,
        stage: Stage,
        count: int,
        every: float,
        *,
        harms: Sequence[Harm] = (kill,),
        at_work_only: bool = False,
        **more: object,
    ) -> None:
        self.stage = stage
        self._count = count
        self._every = every
        self._at_work_only = at_work_only
        self._harms = harms
        self._more = more
        self._resting = Event()
        self._children: list[Child] = []
        self._turn = Lock()
        self.deaths: Counter[int] = Counter()

    @contextmanager
    def at_work(self) -> Iterator["Assassin"]:
        """Do harm until the block ends; the consumers then still run."""
        thread = Thread(target=self._work, name="assassin")
        thread.start()
        try:
            yield self
        finally:
            self._resting.set()
            thread.join()

    def _work(self) -> None:
        turn = 0
        self._replace()
        while not self._resting.wait(self._every):
            with self._turn:
                self._replace()
                if not self._harms:
                    continue
                harm, child = self._harms[turn % len(self._harms)], self._children[turn % self._count]
                if self._at_work_only and not self.stage.has_begun(child.pid):
                    continue
                if happened := harm(child):
                    self.stage.happened(happened)
                    self._replace()
                turn += 1

    def borrow(self) -> Child:
        """Give up a consumer that works, for harm of another kind; a newcomer takes its place."""
        found: list[Child] = []

        def working() -> bool:
            with self._turn:
                at_work = [
                    child for child in self._children if child.code is None and self.stage.applied(child.pid)
                ]
                if at_work:
                    self._children.remove(at_work[0])
                    self._replace()
                found.extend(at_work[:1])
            return bool(found)

        wait_for(working, "a consumer at work", pause=0.1)
        return found[0]

    def _replace(self, *, all_of_them: bool = False) -> None:
        """Start consumers for those that ended; after one that could not start only one more, as anyone who starts them would."""
        failed = False
        for place in range(self._count):
            if place >= len(self._children):
                self._children.append(self.stage.consumer(**self._more))
            elif (code := self._children[place].code) is not None and (all_of_them or not failed):
                failed = failed or code > 0
                self.deaths[code] += 1
                self._children[place] = self.stage.consumer(**self._more)

    def drain(self) -> list[int]:
        """Have the consumers that live now end in order; returns their exit codes."""
        self._replace(all_of_them=True)
        codes = [child.drain(40) for child in self._children]
        return [0 if code == -signal.SIGTERM else code for code in codes]  # that one had not begun
