"""Who is dead for sure, and who may live."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from oncemq_adapters.embedded.members import Life, _born, is_dead, this_process
from support.brokers.embedded_broker import eventually


def test_this_process_lives():
    """No one takes his own leases away."""
    assert not is_dead(this_process(), this_process())


def test_ended_process_is_dead():
    """A process that has ended is dead, also while its parent has not asked for its result."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    other = replace(here, pid=child.pid, born=_born(child.pid))
    assert not is_dead(other, here)
    child.kill()
    eventually(lambda: is_dead(other, here), "the unburied child to count as dead")
    child.wait()
    child.stdin.close()
    assert is_dead(other, here)


def test_a_process_lives_until_its_last_thread_has_ended():
    """Its files and locks are held so long: a crash that is read before would not be charged to the message."""
    script = (
        "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start(); "
        "ctypes.CDLL(None).syscall({'x86_64': 60}.get(__import__('platform').machine(), 93), 0)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    here = this_process()
    try:
        eventually(lambda: _state(child.pid) == "Z", "the main thread to end before the other")
        other = replace(here, pid=child.pid, born=_stat(child.pid)[19])
        assert not is_dead(other, here)
        child.kill()
        eventually(lambda: is_dead(other, here), "the process to count as dead with its last thread")
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def test_reused_number_is_another_process():
    """A process of the same number that started at another time is not the one we knew."""
    here = this_process()
    assert is_dead(replace(here, born="1"), here)


def test_restarted_machine_has_no_survivors():
    """Anyone who lived before the machine started is dead."""
    here = this_process()
    assert is_dead(replace(here, boot="another"), here)


def test_other_machines_and_containers_are_unknown():
    """Of other hosts and of other process number spaces nothing is known, so they live."""
    here = this_process()
    assert not is_dead(replace(here, host="elsewhere", boot="x", born="1"), here)
    assert not is_dead(replace(here, space="pid:[1]", born="1"), here)


def test_without_a_process_table_no_process_is_dead():
    """Where the system tells nothing, leases end by time alone."""
    blind = Life(this_process().host, "", "", 1, "")
    assert not is_dead(replace(blind, pid=99999999), blind)


def test_program_names_with_parentheses_do_not_confuse(tmp_path: Path):
    """The start time is found behind the program's name, whatever that is."""
    program = tmp_path / "a) b (c"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "60"])
    try:
        eventually(lambda: _born(child.pid).isdigit(), "a start time")
    finally:
        child.kill()
        child.wait()


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
