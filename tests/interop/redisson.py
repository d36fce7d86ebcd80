"""A real Redisson in a Java process of its own, told by lines what to do; fetched and compiled once for a checkout."""

import fcntl
import itertools
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from oncemq.redis.address import Formation, parse_address
from services.catalog import FOLDER
from services.errors import ServiceError
from services.install import install_packages
from services.servers.rocketmq_jars import collect

HERE = Path(__file__).parent
JDK = "default-jdk-headless"
VERSIONS = ("4.7.0", "3.27.2")
WATCHDOG_MS = 1500


class Peer:
    """One client of Redisson; its threads are owners of locks.

    Args:
        url: of Redis, as the tests have it.
        version: Redisson's.
    """

    def __init__(self, url: str, version: str) -> None:
        address = parse_address(url)
        formation = "cluster" if address.formation is Formation.CLUSTER else "server"
        places = [f"{host}:{port}" for host, port in address.places]
        program = [
            _program("java"),
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path(version),
            "Peer",
        ]
        self._process = subprocess.Popen(
            [*program, formation, str(WATCHDOG_MS), *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._open: dict[str, Future[str]] = {"ready": Future()}
        ready = self._open["ready"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._write(str(address.password))
        ready.result(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, *words: object, thread: str = "main") -> Future[str]:
        """Have `thread` do something, and return what will be its result."""
        number = str(next(self._numbers))
        answer = self._open[number] = Future()
        self._write(" ".join(map(str, (number, thread, *words))))
        return answer

    def do(self, *words: object, thread: str = "main") -> str:
        """Have `thread` do something, and return its result."""
        return self.ask(*words, thread=thread).result(30)

    def kill(self) -> None:
        """SIGKILL it: its locks stay, and no one renews them."""
        self._process.kill()
        self._process.wait(10)
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _write(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise RuntimeError("the peer has no input")
        stdin.write(f"{line}\n")
        stdin.flush()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            number, _, result = line.rstrip("\n").partition(" ")
            answer = self._open.pop(number, None)
            if answer is not None:
                answer.set_result(result)
        for answer in self._open.values():
            answer.set_exception(RuntimeError("the Java process has ended"))


def class_path(version: str) -> str:
    """Return the class path of the peer with this Redisson; fetches and compiles what is missing."""
    place = FOLDER / "jars" / f"redisson-{version}"
    classes = FOLDER / "jars" / f"peer-{version}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            collect(HERE / "redisson.xml", place, f"-Dredisson.version={version}")
        source = HERE / "Peer.java"
        if not classes.is_dir() or classes.stat().st_mtime < source.stat().st_mtime:
            _compile([_program("javac"), "-cp", f"{place}/*", "-d", str(classes), str(source)])
            classes.touch()
    return f"{classes}:{place}/*"


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceError(f"the Java side of the tests does not compile:\n{done.stderr[-3000:]}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None and install_packages(JDK):
        found = shutil.which(name)
    if found is None:
        raise ServiceError(f"{name} is not installed; on Debian and Ubuntu: apt-get install {JDK}")
    return found
