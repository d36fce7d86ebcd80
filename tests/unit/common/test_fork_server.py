"""Tests of the fork server, each in a program of its own: a test process has threads, of which none may be forked."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = '''
import json, os, signal, socket, sys, threading, time
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path

from oncemq.common.fork_server import ForkServer


def tell(about, word, ancestors):
    """Send the answer of `about` to the owner."""
    word.send(about())
    return 0


def ask(forks, about):
    """Return the answer of `about` in a forked process."""
    mine, its = Pipe(duplex=False)
    process = forks.fork(partial(tell, about), its)
    its.close()
    answer = mine.recv()
    process.join()
    return answer


def exit_code(forks, main):
    """Return the exit code of a forked process."""
    mine, its = Pipe(duplex=False)
    process = forks.fork(main, its)
    wait([process.sentinel], 60)
    process.join()
    return process.exitcode
'''


def run(lines: str) -> Any:
    """Run a program that ends with `print(json.dumps(…))`; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + lines], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("return 7", 7),
        ("sys.exit(3)", 3),
        ("sys.exit('in words')", 1),
        ("raise ValueError('x')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_the_end_is_told_as_it_was(end: str, code: int) -> None:
    """Exit codes and signals of a forked process reach the owner, which is not its parent."""
    assert (
        run(
            f"""
def main(word, ancestors):
    {end}

forks = ForkServer.started()
print(json.dumps(exit_code(forks, main)))
forks.close()
"""
        )
        == code
    )


def test_a_forked_process_obeys_signals_as_a_new_one() -> None:
    """Handlers of its owner are not its own, nothing but Ctrl-C is blocked, and what `nohup` ignores stays ignored."""
    assert run(
        """
def state():
    return (
        {number.name: str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)},
        sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    )

signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
forks = ForkServer.started()
print(json.dumps(ask(forks, state)))
forks.close()
"""
    ) == [{"SIGTERM": "0", "SIGHUP": "1", "SIGUSR1": "0"}, ["SIGINT"]]


def test_a_forked_process_has_no_descriptor_of_others() -> None:
    """What the owner opens later, such as a connection to a broker, and the channels of other workers are not its own."""
    assert run(
        """
def opened():
    found = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if int(number) > 2
             if Path(f"/proc/self/fd/{number}").is_symlink()]
    return sorted(text.partition(":")[0] for text in found if not text.startswith("/"))

def stay(word, ancestors):
    word.send(None)
    ancestors.join(60)
    return 0

before = opened()
forks = ForkServer.started()
connection = socket.create_server(("127.0.0.1", 0))
mine, its = Pipe(duplex=False)
forks.fork(stay, its)
mine.recv()
answer = ask(forks, opened)
for text in before:
    answer.remove(text)
print(json.dumps(answer))
forks.close()
"""
    ) == ["anon_inode", "anon_inode", "pipe"]


def test_modules_are_imported_once() -> None:
    """What the server has imported is there in each forked process; what cannot be imported is left out."""
    assert run(
        """
def imported():
    return "wave" in sys.modules

forks = ForkServer.started()
before = ask(forks, imported)
forks.import_modules(["no.such.module", "wave"])
print(json.dumps([before, ask(forks, imported)]))
forks.close()
"""
    ) == [False, True]


def test_nothing_is_forked_beside_a_thread() -> None:
    """A program that has a thread gets no server, and a server in which an import has started one forks no more."""
    assert run(
        """
import tempfile

with tempfile.TemporaryDirectory() as folder:
    sys.path.append(folder)
    Path(folder, "starts_a_thread.py").write_text(
        "import threading\\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\\n"
    )
    forks = ForkServer.started()
    forks.import_modules(["starts_a_thread"])
    refused = forks.fork(tell, Pipe()[1]) is None
    forks.close()
    import starts_a_thread
    print(json.dumps([refused, ForkServer.started() is None]))
"""
    ) == [True, True]


def test_what_a_process_registered_for_its_exit_runs() -> None:
    """As in a process of its own: threads that are no daemons end first, then come functions of `atexit`, in the output nothing is lost."""
    assert run(
        """
import atexit

def main(word, ancestors):
    said = []
    atexit.register(lambda: print(json.dumps([*said, "exit"])))
    threading.Thread(target=lambda: (time.sleep(0.1), said.append("thread"))).start()
    return 0

forks = ForkServer.started()
exit_code(forks, main)
forks.close()
"""
    ) == ["thread", "exit"]


def test_a_closed_server_has_ended() -> None:
    """So has one that does not respond, and nothing can be forked by it any more."""
    assert run(
        """
forks = ForkServer.started()
os.kill(forks.pid, signal.SIGSTOP)
forks.close()
print(json.dumps([Path(f"/proc/{forks.pid}").exists(), forks.fork(tell, Pipe()[1]) is None]))
"""
    ) == [False, True]


def test_a_process_outlives_its_server_and_is_watched_on() -> None:
    """A killed server is known as lost: the process may end by itself, and its end is seen without an exit code."""
    assert run(
        """
def stay(word, ancestors):
    word.send(None)
    ancestors.join(60)
    word.send(ancestors.is_alive())
    word.recv()
    return 0

forks = ForkServer.started()
mine, its = Pipe()
process = forks.fork(stay, its)
its.close()
mine.recv()
forks.close()
orphan = mine.recv()
running = process.is_alive()
mine.send(None)
process.join()
print(json.dumps([orphan, running, process.lost, process.is_alive()]))
"""
    ) == [False, True, True, False]
