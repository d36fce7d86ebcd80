"""MariaDB: where its programs are, how it is set up and asked."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.server import Server

USER = "oncemq"
PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")


class MariaDB(Server):
    """One MariaDB with the all-powerful user `oncemq`."""

    kind: ClassVar[str] = "mariadb"
    variable: ClassVar[str] = "ONCEMQ_TEST_MARIADB"
    packages: ClassVar[Sequence[str]] = ("mariadb-server",)
    port_names: ClassVar[Sequence[str]] = ("sql",)
    users: ClassVar[Sequence[str]] = ("mysql",)
    in_memory: ClassVar[bool] = True

    @classmethod
    def installed(cls) -> bool:
        """Return whether server, set-up program and client are found."""
        return all(_find(name) for name in PROGRAMS)

    @property
    def url(self) -> str:
        """The URL of the system database, without TLS.

        PyMySQL would else prepare TLS for each connection, 25 ms of processor time, and then find that there is none.
        """
        login = f"{USER}:{self.settings.password}@{LOOPBACK}:{self.port}"
        return f"mysql+pymysql://{login}/mysql?charset=utf8mb4&ssl_disabled=true"

    def answers(self) -> bool:
        """Return whether SELECT 1 is answered."""
        return self._said(self.port, "SELECT 1") == "1"

    def prepare(self) -> None:
        """Create the system tables once, and the statements that every start runs."""
        self.account.write(
            self._first_statements,
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{self.settings.password}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
            f"ALTER USER root@localhost IDENTIFIED BY '{self.settings.password}';\n",
        )
        if (self._tables / "mysql").exists():
            return
        setup = subprocess.run(
            [
                self._program("mariadb-install-db"), "--no-defaults", f"--datadir={self._tables}", "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            check=False,
            **self.account.popen_arguments(),
        )  # fmt: skip
        if setup.returncode != 0:
            raise ServiceError(
                f"mariadb-install-db failed in {self._tables}:\n{setup.stderr.decode(errors='replace')}"
            )

    def launches(self) -> Sequence[Launch]:
        """Return the server with InnoDB as it comes: every commit is flushed."""
        argv = [
            self._program("mariadbd"),
            "--no-defaults",
            f"--datadir={self._tables}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            "--socket=mariadb.sock",  # relative to the data: paths of sockets are limited to 107 characters
            "--pid-file=mariadb.pid",
            f"--init-file={self._first_statements}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--max-connections=200",
            "--innodb-flush-log-at-trx-commit=1",
        ]
        return [Launch("mariadbd", argv)]

    def _said(self, port: int, statement: str) -> str:
        """Return what the server on this port answers; nothing where it does not."""
        query = subprocess.run(
            [
                self._program("mariadb"), "--no-defaults", "--protocol=tcp", f"--host={LOOPBACK}", f"--port={port}",
                f"--user={USER}", "--connect-timeout=2", "--batch", "--skip-column-names", f"--execute={statement}",
            ],
            env={"MYSQL_PWD": self.settings.password},
            capture_output=True,
            check=False,
        )  # fmt: skip
        return query.stdout.decode(errors="replace").strip()

    @property
    def _tables(self) -> Path:
        return self.data / "tables"

    @property
    def _first_statements(self) -> Path:
        return self.data / "first.sql"

    def _program(self, name: str) -> str:
        found = _find(name)
        if found is None:
            raise ServiceError(f"MariaDB's {name} is not installed. Run `make services`.")
        return found


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/libexec")
