"""The thread that reads what the process with librocketmq says."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from oncemq_adapters.librocketmq import frames
from oncemq_adapters.rocketmq.native.process import LibraryProcess


@pytest.mark.slow
def test_a_process_without_listeners_does_not_count_as_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its member would wait for ever, a member of its group and silent."""
    said: Iterator[Any] = iter(
        [{"kind": frames.STARTED}, {"kind": frames.MESSAGE, "message": ["topic", 0, 0, 1, "id"]}]
    )
    monkeypatch.setattr(frames, "read", lambda _stream: next(said))
    monkeypatch.setattr(frames.Writer, "write", lambda *_: None)
    ended = Event()

    def on_message(_message: frames.Identity) -> None:
        raise LookupError("a bug")

    process = LibraryProcess(on_message, print, ended.set)
    try:
        with capture_logs() as logs:
            process.start({})
            assert ended.wait(20)
        assert not process.alive
        assert [entry["log_level"] for entry in logs] == ["error"]
    finally:
        process.kill()
