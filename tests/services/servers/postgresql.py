"""PostgreSQL: where its programs are, how it is set up and asked."""

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.server import Server

USER = "oncemq"
OPTIONS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # paths of sockets are limited to 107 characters; a checkout's are not
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "logging_collector": "off",
}


class PostgreSQL(Server):
    """One PostgreSQL cluster with the superuser `oncemq`."""

    kind: ClassVar[str] = "postgresql"
    variable: ClassVar[str] = "ONCEMQ_TEST_POSTGRESQL"
    packages: ClassVar[Sequence[str]] = ("postgresql",)
    port_names: ClassVar[Sequence[str]] = ("sql",)
    users: ClassVar[Sequence[str]] = ("postgres",)
    in_memory: ClassVar[bool] = True

    @classmethod
    def installed(cls) -> bool:
        """Return whether a folder with postgres, initdb and psql exists."""
        return _programs() is not None

    @property
    def url(self) -> str:
        """The URL of the maintenance database."""
        return f"postgresql+psycopg://{USER}:{self.settings.password}@{LOOPBACK}:{self.port}/postgres"

    def answers(self) -> bool:
        """Return whether SELECT 1 is answered."""
        query = subprocess.run(
            [
                self._program("psql"),
                "-XAtw",
                "-h",
                LOOPBACK,
                "-p",
                str(self.port),
                "-U",
                USER,
                "-c",
                "SELECT 1",
                "postgres",
            ],
            env={"PGPASSWORD": self.settings.password, "PGCONNECT_TIMEOUT": "2"},
            capture_output=True,
            cwd="/",
            check=False,
        )
        return query.stdout.strip() == b"1"

    def prepare(self) -> None:
        """Run initdb once."""
        if (self._cluster / "PG_VERSION").exists():
            return
        password = self.account.write(self.data / "password", self.settings.password)
        setup = subprocess.run(
            [
                self._program("initdb"), "--pgdata", str(self._cluster), "--username", USER, "--pwfile", str(password),
                "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            check=False,
            **self.account.popen_arguments(),
        )  # fmt: skip
        if setup.returncode != 0:
            raise ServiceError(f"initdb failed in {self._cluster}:\n{setup.stderr.decode(errors='replace')}")

    def launches(self) -> Sequence[Launch]:
        """Return the postmaster; SIGINT is its fast shutdown."""
        options = [f"--{name}={value}" for name, value in {**OPTIONS, "port": str(self.port)}.items()]
        argv = [self._program("postgres"), "-D", str(self._cluster), *options]
        return [Launch("postgres", argv, stop_signal=signal.SIGINT)]

    @property
    def _cluster(self) -> Path:
        return self.data / "cluster"

    def _program(self, name: str) -> str:
        programs = _programs()
        if programs is None:
            raise ServiceError("PostgreSQL is not installed. Run `make services`.")
        return str(programs / name)


def _programs() -> Path | None:
    """Return the folder with the server's own programs; Debian keeps them out of PATH."""
    found = shutil.which("postgres")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    if found is not None:
        folders.append(Path(found).resolve().parent)
    complete = (f for f in folders if all((f / name).exists() for name in ("postgres", "initdb", "psql")))
    return next(complete, None)


def _version(programs: Path) -> float:
    try:
        return float(programs.parent.name)
    except ValueError:
        return 0
