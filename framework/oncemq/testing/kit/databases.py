"""Databases of a test: SQLite files of its own, or a schema of its own on a server, removed afterwards."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Engine, MetaData, event, make_url

from oncemq.common.clock import Clock
from oncemq.ledger import schema
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.server_clock import substitute_clock

Tables = MetaData | Callable[[Engine], object]
"""The tables that handlers use: their metadata, or a function that creates them on an engine."""

_NAME: Final = "oncemq_test_"


class Databases:
    """Creates the databases of one test.

    Args:
        urls: of servers, with credentials; None = those that the app declares.
        tables: the tables that handlers use.
        clock: taken for the databases' own by the ledger; None = the databases' own.
    """

    def __init__(self, urls: Sequence[str] | None, tables: Tables | None, clock: Clock | None) -> None:
        self._urls = urls
        self._tables = tables
        self._clock = clock
        self._folder: Path | None = None
        self._used: list[str] = []
        self._drops: list[Callable[[], None]] = []

    def engines(self, declared: Sequence[str]) -> list[Engine]:
        """Return an engine for each of the app's databases; later calls return new engines on the same ones.

        Args:
            declared: the URLs in the app's configuration.

        Raises:
            ValueError: other URLs were given, but not as many.
        """
        if not self._used:
            self._used = self._create(declared)
            for url in self._used:
                engine = self._engine(url)
                self._create_tables(engine)
                engine.dispose()
        return [self._engine(url) for url in self._used]

    def folder(self) -> Path:
        """Return a folder of the test's own, which `close` removes."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=_NAME))
        return self._folder

    def close(self) -> None:
        """Remove the databases, and the folder."""
        for drop in self._drops:
            drop()
        self._drops, self._used = [], []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _create(self, declared: Sequence[str]) -> list[str]:
        urls = self._urls if self._urls is not None else declared
        if len(urls) != len(declared):
            raise ValueError(f"the app has {len(declared)} databases, and {len(urls)} URLs were given")
        return [self._own_place(url) for url in urls]

    def _own_place(self, url: str) -> str:
        """Return the URL of a new file (SQLite), schema (PostgreSQL) or database (MySQL, MariaDB)."""
        name, parsed = f"{_NAME}{uuid4().hex[:12]}", make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite":
            file = self.folder() / f"{name}.db"
            file.write_bytes(_ledger())
            return f"sqlite:///{file}"
        word, cascade = ("SCHEMA", " CASCADE") if backend == "postgresql" else ("DATABASE", "")
        self._run(url, f"CREATE {word} {name}")
        self._drops.append(lambda: self._run(url, f"DROP {word} {name}{cascade}"))
        own = (
            parsed.update_query_dict({"options": f"-csearch_path={name}"})
            if backend == "postgresql"
            else parsed.set(database=name)
        )
        return own.render_as_string(hide_password=False)

    def _run(self, url: str, statement: str) -> None:
        engine = make_engine(url)
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        finally:
            engine.dispose()

    def _engine(self, url: str) -> Engine:
        engine = make_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _hurry)
        if self._clock is not None:
            substitute_clock(engine, self._clock)
        return engine

    def _create_tables(self, engine: Engine) -> None:
        if isinstance(self._tables, MetaData):
            self._tables.create_all(engine)
        elif self._tables is not None:
            self._tables(engine)


def _hurry(connection: Any, record: Any) -> None:  # noqa: ARG001 - the event's signature
    """The file is removed after the test: it need not survive a power failure, and no other process locks it."""
    for setting in ("synchronous = OFF", "busy_timeout = 500"):
        connection.execute(f"PRAGMA {setting}").fetchall()


@cache
def _ledger() -> bytes:
    """Return a SQLite file with the ledger's tables, which takes longer to create than to copy."""
    with tempfile.TemporaryDirectory(prefix=_NAME) as folder:
        file = Path(folder) / "ledger.db"
        engine = make_engine(f"sqlite:///{file}")
        schema.create(engine)
        engine.dispose()
        return file.read_bytes()


def reading(engine: Engine) -> Engine:
    """Return the engine for sessions of the test, which must not take SQLite's write lock by reading."""
    return engine.execution_options(**{READ_ONLY: True})
