"""The process with librocketmq never outlives its parent, be it frozen or not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import os, time
from oncemq_adapters.rocketmq.native.process import LibraryProcess

process = LibraryProcess(print, print, print)
child = process._process.pid
while os.readlink(f"/proc/{child}/fd/1") != os.devnull:
    time.sleep(0.01)
process.freeze()
print(child, flush=True)
time.sleep(600)
"""
"""Freezes it as soon as it is up, and then has no time to kill it."""


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_frozen_process_ends_with_its_parent() -> None:
    """A member that is killed while it leaves would else stay in its group for ever, with its share of the queues."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        assert _runs(child)
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 20
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        assert not _runs(child)
    finally:
        if _runs(child):
            os.kill(child, signal.SIGKILL)
