"""Tests of the lock that shows whether a process is alive."""

import subprocess
import sys
from pathlib import Path

from oncemq.engine.crash.process_lock import lives

PROGRAM = """
import os, sys
from pathlib import Path
from oncemq.engine.crash.process_lock import ProcessLock

lock = ProcessLock(Path(sys.argv[1]))
forked, ready = os.pipe()
if os.fork() == 0:
    os.write(ready, b".")
    sys.stdin.read()
    os._exit(0)
os.read(forked, 1)
print(lock.name, flush=True)
os._exit(1)
"""


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The lock ends with its process, also while a process that it forked lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.wait()
    assert name
    assert not lives(tmp_path, name)
    process.stdin.close()
    process.stdout.close()
