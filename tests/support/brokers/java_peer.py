"""The official Java clients of RocketMQ and Kafka in processes of their own, that follow orders and tell what they receive."""

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import ClassVar, Self
from urllib.parse import urlsplit

from services import catalog
from services.servers import kafka, rocketmq_jars
from services.servers.rocketmq import RocketMQ

SOURCES = Path(__file__).parents[2] / "interop"


@dataclass(frozen=True, slots=True)
class Received:
    """What Java's consumer was given.

    Args:
        attempts: Java's count of tries before this one.
        body: as Java sees it.
        properties: as Java sees them.
        at: when it was told, monotonic.
    """

    attempts: int
    body: bytes
    properties: dict[str, str]
    at: float = field(default_factory=monotonic, compare=False)


class JavaPeer:
    """One Java process with RocketMQ's client."""

    program: ClassVar[str] = "RocketMQPeer"

    @classmethod
    def jars(cls) -> str:
        """Return the class path of the client."""
        return rocketmq_jars.class_path()

    def __init__(self, url: str, classes: Path) -> None:
        parts = urlsplit(url)
        java = rocketmq_jars.java() or "java"
        self._changed = Condition()
        self._answers: list[str] = []
        self.received: list[Received] = []
        self._process = subprocess.Popen(
            [
                java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8",
                # A new member asks for its queues every second, and not every 20.
                "-Drocketmq.client.rebalance.waitInterval=1000",
                "-Dstdout.encoding=UTF-8", f"-Duser.home={classes}",
                "-cp", f"{classes}:{self.jars()}",
                self.program, f"{parts.hostname}:{parts.port}", parts.username or "",
            ],
            env={**os.environ, "PEER_PASSWORD": parts.password or ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        self._reader = Thread(target=self._read)
        self._reader.start()

    def order(self, *words: object) -> None:
        """Have it do something; returns when it is done."""
        before = len(self._answers)
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._answers) > before, 60), (
                f"Java did not do: {words}"
            )
        assert self._answers[-1] == "", f"Java could not do {words}: {self._answers[-1]}"

    def wait_for(self, count: int, timeout: float = 40) -> list[Received]:
        """Return what it has received as soon as that is so much."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.received) >= count, timeout)
            assert enough, f"Java received {len(self.received)} of {count}"
            return list(self.received)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.removeprefix("> ").strip().partition(" ")
            with self._changed:
                if line.startswith("> ") and word in {"done", "failed"}:
                    self._answers.append(rest)
                elif line.startswith("> ") and word == "received":
                    self.received.append(self._take(_parse(rest)))
                self._changed.notify_all()

    def _take(self, message: Received) -> Received:
        """Do something with what it has received, before the test is told."""
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KafkaPeer(JavaPeer):
    """One Java process with Kafka's client."""

    program: ClassVar[str] = "KafkaPeer"

    @classmethod
    def jars(cls) -> str:
        """Return the class path of the client."""
        return kafka.class_path()


@contextmanager
def compiled(folder: Path, peer: type[JavaPeer] = JavaPeer) -> Iterator[Path]:
    """Lend the compiled peer."""
    source = SOURCES / f"{peer.program}.java"
    subprocess.run(
        ["javac", "-encoding", "UTF-8", "-cp", peer.jars(), "-d", str(folder), str(source)], check=True
    )
    yield folder


def mqadmin(*arguments: str, folder: Path | None = None) -> str:
    """Run RocketMQ's tool on the shared servers; returns what it prints. Some commands write files to `folder`."""
    server = catalog.make(RocketMQ, catalog.FOLDER / RocketMQ.kind)
    assert isinstance(server, RocketMQ)
    command = server.administration(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout


def _parse(line: str) -> Received:
    attempts, body, *properties = line.split(" ")
    pairs = [base64.b64decode(pair).decode().partition("=") for pair in properties]
    return Received(
        int(attempts), base64.b64decode(body.removesuffix(".")), {name: value for name, _, value in pairs}
    )
