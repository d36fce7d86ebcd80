"""The embedded broker under test: its file is its server, so stopping it means taking the file away."""

import shutil
import sqlite3
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq_adapters.embedded import EmbeddedAdapter

_PARTS = ("", "-wal", "-shm")


class EmbeddedHarness(AdapterHarness):
    """A broker in a file of the test's own folder."""

    adapter_class = EmbeddedAdapter
    silence = 0.2

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "broker.db"
        self._away = folder / "away.db"
        self.url = f"embedded:///{self._file}"
        self.address = str(folder / "missing")

    def leasing_adapter(self, lease: timedelta) -> Adapter:
        """Return an adapter with short leases."""
        return self.make_adapter(lease=lease)

    def unroutable(self) -> Topic:
        """Return a name that no topic can have: any other topic can be published to."""
        return Topic("", {})

    def unreachable(self) -> Adapter:
        """Return an adapter whose folder does not exist."""
        return self._at(self._folder / "missing" / "broker.db")

    def unwelcome(self) -> Adapter:
        """Return an adapter on a file that is no database."""
        other = self._folder / "letter.txt"
        other.write_text("Dear reader, this is no database. " * 50, encoding="utf-8")
        return self._at(other)

    def stop(self) -> None:
        """Take the file away from under its connections."""
        for part in _PARTS:
            source = Path(f"{self._file}{part}")
            if source.exists():
                source.rename(f"{self._away}{part}")

    def start(self) -> None:
        """Put the file back."""
        # The file itself comes last: without it no one can connect to half a broker.
        for part in reversed(_PARTS):
            source = Path(f"{self._away}{part}")
            if source.exists():
                source.rename(f"{self._file}{part}")

    def cut(self) -> None:
        """Replace the file by a copy, which breaks every open connection."""
        # Under the file's own lock no one can be told that something is stored which the copy does not hold.
        connection = sqlite3.connect(self._file, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            self.stop()
            for part in ("-wal", ""):
                source = Path(f"{self._away}{part}")
                if source.exists():
                    shutil.copyfile(source, f"{self._file}{part}.copy")
                    Path(f"{self._file}{part}.copy").rename(f"{self._file}{part}")
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def _at(self, path: Path, options: Mapping[str, Any] | None = None) -> Adapter:
        scope = AdapterScope(app="adapter-suite", broker="under-test", clock=SystemClock())
        return EmbeddedAdapter.build(f"embedded:///{path}", options or {}, scope)
