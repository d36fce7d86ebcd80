"""Folders and files that no one else may read, or prepare for us."""

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.common.clock import SystemClock
from oncemq.common.private_files import open_private, private_folder, state_folder
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq.engine.crash.flight_recorder import Recorder
from oncemq.engine.crash.process_lock import ProcessLock
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.embedded import EmbeddedAdapter


def mode(path: Path) -> int:
    """Return who may do what."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_folder_is_made_and_closed(tmp_path: Path) -> None:
    """It has mode 700, also when it was open before."""
    folder = tmp_path / "a" / "b"
    assert mode(private_folder(folder)) == 0o700
    folder.chmod(0o755)
    assert mode(private_folder(folder)) == 0o700


def test_a_link_is_no_private_folder(tmp_path: Path) -> None:
    """Where others can write, a link leads to what they have chosen."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="link"):
        private_folder(tmp_path / "logs")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could read and replace everything in it."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(PermissionError, match="belongs to user"):
        private_folder(tmp_path / "logs")
    with pytest.raises(PermissionError, match="belongs to user"):
        open_private(tmp_path / "file")


def test_a_file_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    """What it points to stays as it was."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "record").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        open_private(tmp_path / "record")
    with pytest.raises(OSError):
        Recorder(tmp_path / "record")
    assert (tmp_path / "precious").read_text() == "kept"


def test_flight_recorders_are_private(tmp_path: Path) -> None:
    """The folder, the records and what says that a process lives are closed to others."""
    state = tmp_path / "state"
    presence, recorder = ProcessLock(state), Recorder(state / "x.rec")
    assert mode(state) == 0o700
    assert {mode(file) for file in state.iterdir()} == {0o600}
    presence.leave()
    recorder.close()


def test_a_state_folder_that_was_open_is_closed_to_others(tmp_path: Path) -> None:
    """One of an older version is readable for all; a group that was given rights keeps them."""
    tmp_path.chmod(0o775)
    assert mode(state_folder(tmp_path)) == 0o770


@pytest.mark.parametrize("before", [None, 0o644])
def test_the_embedded_brokers_files_are_private(tmp_path: Path, before: int | None) -> None:
    """Bodies lie in the file and in its log; an older file is closed to others."""
    file = tmp_path / "broker.db"
    if before is not None:
        file.touch()
        file.chmod(before)
    adapter = EmbeddedAdapter.build(f"embedded:///{file}", {}, AdapterScope("tests", "shop", SystemClock()))
    adapter.open([Subscription("points", "orders", "g")], RecordingSink())
    try:
        found = {path.name: mode(path) for path in tmp_path.glob("broker.db*")}
    finally:
        adapter.close(grace=timedelta(seconds=1))
    assert set(found) == {"broker.db", "broker.db-wal", "broker.db-shm"}
    assert set(found.values()) == {0o600 if before is None else 0o640}
