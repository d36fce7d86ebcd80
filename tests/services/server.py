"""What every server can do: start, stop, be killed, frozen and restarted on the same port and data."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services import memory, ports
from services.account import Account, remove_folder
from services.errors import PortTakenError, ServiceError
from services.process import Launch, Process
from services.settings import Settings
from services.waiting import wait_until

STARTS = 3
"""Tries of a first start."""
PORT_TAKEN = re.compile("address already in use|eaddrinuse", re.IGNORECASE)


class Server(ABC):
    """One real server: its folder, its ports, its processes."""

    kind: ClassVar[str]
    variable: ClassVar[str]
    """Environment variable that carries the URL to the tests."""
    packages: ClassVar[Sequence[str]]
    """Debian packages that bring the programs."""
    port_names: ClassVar[Sequence[str]]
    """The first is the one clients use."""
    users: ClassVar[Sequence[str]]
    """Users to run as when we are root, best first."""
    start_seconds: ClassVar[float] = 90
    in_container: ClassVar[bool] = True
    """Whether Docker Compose can stand in where the programs are missing."""
    in_memory: ClassVar[bool] = False
    """Whether its data stand in memory where there is room; a kill of its processes leaves them there as on a disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = Settings.of(folder, self.port_names)
        self.account = Account.choose(*self.users)
        self._children: dict[str, Process] = {}

    @classmethod
    @abstractmethod
    def installed(cls) -> bool:
        """Return whether the programs are on this machine."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients, with user and password."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether a client's real first request is answered."""

    @abstractmethod
    def prepare(self) -> None:
        """Make configuration and data where they are missing; called before every start."""

    @abstractmethod
    def launches(self) -> Sequence[Launch]:
        """Return the processes in the order in which they start."""

    @property
    def port(self) -> int:
        """The port that clients use; stays the same over restarts."""
        return self.settings.ports[self.port_names[0]]

    @property
    def urls(self) -> Mapping[str, str]:
        """What goes into the environment of the tests: variable to URL; one, unless there are several ways in."""
        return {self.variable: self.url}

    @property
    def data(self) -> Path:
        """The real place of the data, owned by the user the server runs as."""
        return self.account.make_folder(self.folder / "data", memory.roomy() if self.in_memory else None)

    @property
    def running(self) -> bool:
        """Whether all of its processes run."""
        return all(self._process(launch) is not None for launch in self.launches())

    def start(self) -> None:
        """Start what does not run yet and wait until it answers.

        The first time, a chosen port that another program took meanwhile costs other ports and another try.
        """
        first = not (self.folder / "data").exists()
        for _ in range(STARTS - 1 if first else 0):
            try:
                return self._start_once()
            except PortTakenError:
                self.kill()
                self.remove()
                self.settings.move(self.folder)
        return self._start_once()

    def _start_once(self) -> None:
        if not self.running:
            self.prepare()
        for launch in self.launches():
            if self._process(launch) is None:
                self._start_process(launch)
        self.wait_ready()

    def wait_ready(self, *, seconds: float | None = None) -> None:
        """Wait until it answers; a process that died meanwhile is an error with the end of its log."""
        seconds = self.start_seconds if seconds is None else seconds
        if not wait_until(lambda: self.answers() or not self.running, seconds=seconds):
            raise ServiceError(f"{self.kind} does not answer after {seconds:.0f} s.\n{self._log_end()}")
        if not self.running:
            raise self._failure(f"{self.kind} ended while starting.")

    def stop(self) -> None:
        """Shut it down in order; what does not go within its time is killed."""
        for launch in reversed(self.launches()):
            if (process := self._process(launch)) is not None:
                process.terminate(launch.stop_signal)
            self._forget(launch)

    def kill(self) -> None:
        """SIGKILL all of its processes, as a crash or the kernel would."""
        for launch in reversed(self.launches()):
            if (process := self._process(launch)) is not None and not process.kill():
                raise ServiceError(f"{self.kind} (pid {process.pid}) survived SIGKILL.")
            self._forget(launch)

    def kill_only(self, name: str) -> None:
        """SIGKILL one of its processes; `start` brings it back."""
        launch = next(launch for launch in self.launches() if launch.name == name)
        if (process := self._process(launch)) is not None and not process.kill():
            raise ServiceError(f"{name} (pid {process.pid}) survived SIGKILL.")
        self._forget(launch)

    def pause(self, *names: str) -> None:
        """SIGSTOP all or some of its processes: their connections stay open and nothing answers."""
        for launch in self.launches():
            process = self._process(launch)
            if process is not None and (not names or launch.name in names):
                process.freeze()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        for process in self._processes():
            process.thaw()

    def restart(self) -> None:
        """Stop in order and start again: same port, same data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and remove its data; the port stays chosen, the logs stay readable."""
        self.stop()
        remove_folder(self.folder / "data")

    def choose_other_ports_if_taken(self) -> None:
        """Take new ports when someone else listens on ours while we do not run."""
        if not self._processes() and not all(map(ports.is_free, self.settings.ports.values())):
            self.settings.move(self.folder)

    def _start_process(self, launch: Launch) -> None:
        process = Process.start(launch, folder=self.folder, account=self.account)
        self._children[launch.name] = process
        port = launch.listens_on
        if port is not None and not wait_until(
            lambda: ports.accepts(port) or not process.alive, seconds=self.start_seconds
        ):
            raise self._failure(f"{launch.name} does not listen on port {port}.")

    def _process(self, launch: Launch) -> Process | None:
        child = self._children.get(launch.name)
        if child is not None and child.alive:
            return child
        return Process.load(launch, folder=self.folder)

    def _processes(self) -> list[Process]:
        found = (self._process(launch) for launch in self.launches())
        return [process for process in found if process is not None]

    def _forget(self, launch: Launch) -> None:
        self._children.pop(launch.name, None)
        (self.folder / f"{launch.name}.pid").unlink(missing_ok=True)

    def _failure(self, what: str) -> ServiceError:
        log = self._log_end()
        kind = PortTakenError if PORT_TAKEN.search(log) else ServiceError
        return kind(f"{what}\n{log}")

    def _log_end(self) -> str:
        logs = [self.folder / f"{launch.name}.log" for launch in self.launches()]
        ends = [f"--- {log}\n{_last_lines(log)}" for log in logs if log.exists()]
        return "\n".join(ends)


def _last_lines(log: Path, count: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
