"""The same servers out of Docker Compose, for machines where their programs cannot be installed."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from services.errors import ServiceError
from services.server import Server

COMPOSE_FILE = Path(__file__).with_name("compose.yaml")


class Container:
    """A server in a container of its own, on the port and with the password of its native twin."""

    def __init__(self, native: Server) -> None:
        self.native = native
        self.kind = native.kind
        self.variable = native.variable
        self.folder = native.folder
        self.url = native.url
        self.urls = native.urls
        self.port = native.port

    @property
    def running(self) -> bool:
        """Whether the container runs."""
        return bool(self._compose("ps", "--quiet", "--status", "running", self.kind).strip())

    def start(self) -> None:
        """Start it and wait until its health check, a client's first request, succeeds."""
        self._compose("up", "--detach", "--wait", self.kind)

    def wait_ready(self, *, seconds: float | None = None) -> None:
        """Wait until its health check succeeds."""
        seconds = self.native.start_seconds if seconds is None else seconds
        self._compose("up", "--detach", "--wait", "--wait-timeout", str(round(seconds)), self.kind)

    def stop(self) -> None:
        """Stop it in order; its data stays."""
        self._compose("stop", self.kind)

    def kill(self) -> None:
        """SIGKILL it; its data stays."""
        self._compose("kill", self.kind)

    def pause(self) -> None:
        """Freeze all of its processes."""
        self._compose("pause", self.kind)

    def resume(self) -> None:
        """Let them go on."""
        self._compose("unpause", self.kind)

    def restart(self) -> None:
        """Stop in order and start again: same port, same data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Remove the container and its data."""
        self._compose("down", "--volumes")

    def choose_other_ports_if_taken(self) -> None:
        """Take a new port when someone else listens on ours while we do not run."""
        if not self.running:
            self.native.choose_other_ports_if_taken()
            self.url, self.port = self.native.url, self.native.port

    def _compose(self, *arguments: str) -> str:
        name = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:10]
        done = subprocess.run(
            [
                "docker",
                "compose",
                "--project-name",
                f"oncemq-{name}",
                "--file",
                str(COMPOSE_FILE),
                *arguments,
            ],
            env={
                **os.environ,
                "ONCEMQ_PORT": str(self.port),
                "ONCEMQ_PORTS": " ".join(map(str, self.native.settings.ports.values())),
                "ONCEMQ_PASSWORD": self.native.settings.password,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"docker compose {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
        return done.stdout


def docker_works() -> bool:
    """Return whether a Docker daemon answers and Compose is there."""
    if shutil.which("docker") is None:
        return False
    questions = (["docker", "info"], ["docker", "compose", "version"])
    return all(
        subprocess.run(question, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
        for question in questions
    )
