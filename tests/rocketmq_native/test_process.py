"""librocketmq in a process of its own: whatever happens to that, the app lives, and nothing is lost or left behind."""

import os
import signal
import time
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from oncemq.testing.adapter_suite.bench import Bench, bodies, later, numbered
from oncemq.testing.adapter_suite.holder import Holder
from storm.oracle.rocketmq_reader import Reader

MODULE = b"oncemq_adapters.librocketmq"
MANY_LIVES = 20
LISTED = 150
"""Seconds: a broker lists a client for two minutes after its last heartbeat."""


def _processes(parent: int) -> list[int]:
    """Return the processes with librocketmq that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            owner = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if MODULE in line.split(b"\0") and owner == parent:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("fatal", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_crash_of_the_library_is_survived(bench: Bench, fatal: signal.Signals) -> None:
    """When the library crashes, what it held comes again, and what was acknowledged does not."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    bench.publish(topic, *numbered(4))
    first = bench.receive(member, 4)
    bench.settled(member.adapter.acknowledge(first[:1]))
    os.kill(_processes(os.getpid())[0], fatal)
    again = bench.receive(member, 7)[4:]
    assert sorted(bodies(again)) == sorted(bodies(first[1:]))
    bench.settled(member.adapter.acknowledge(again))


def test_process_ends_with_its_parent(bench: Bench) -> None:
    """When the app is killed, its process with librocketmq does not outlive it as a member of the group."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    bench.publish(topic, *numbered(2))
    with Holder(bench.harness, subscription, count=2) as holder:
        holder.wait_until_holding(bench.harness.patience)
        (child,) = _processes(holder._process.pid)
        holder.kill()
        bench.eventually(lambda: not _runs(child), "the process with librocketmq to end")


def test_nothing_runs_during_an_outage(bench: Bench) -> None:
    """A consumer of librocketmq burns a core when its broker is away; so there is none until the broker is back."""
    member = bench.open(bench.subscription(bench.topic()))
    assert len(_processes(os.getpid())) == 1
    bench.harness.stop()
    try:
        bench.eventually(lambda: not _processes(os.getpid()), "the process with librocketmq to end")
    finally:
        bench.harness.start()
    bench.eventually(lambda: bench.subscribed(member), "the consumer to be subscribed again")
    assert len(_processes(os.getpid())) == 1


def test_frozen_process_holds_up_no_close(bench: Bench) -> None:
    """A process that answers no more is ended all the same."""
    member = bench.open(bench.subscription(bench.topic()))
    os.kill(_processes(os.getpid())[0], signal.SIGSTOP)
    begun = time.monotonic()
    bench.close(member)
    assert time.monotonic() - begun < 10
    assert not _processes(os.getpid())


def test_member_that_leaves_is_listed_no_more(bench: Bench) -> None:
    """No broker takes a process that has ended for a member again, however short its life was."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    group = f"{bench.harness.options['namespace']}%{subscription.group}"
    known = Reader(bench.harness.url)
    for count in range(1, MANY_LIVES + 1):
        member = bench.open(subscription)
        bench.publish(topic, b"x")
        bench.settled(member.adapter.retry([later(bench.receive(member, 1)[0], 60.0)]))
        bench.close(member)
        bench.eventually(lambda: not known.members(group), f"the member of life {count} to be forgotten")


@pytest.mark.long_form("ONCEMQ_LIVES")
@pytest.mark.timeout(900)
def test_two_minutes_are_lost_only_where_the_broker_lists_a_dead_process(
    bench: Bench,
) -> None:
    """Processes die within 0.8 s of their start: where the next messages do not come at once, the log has said why."""
    with capture_logs() as logs:
        for count in range(int(os.environ.get("ONCEMQ_LIVES", "40"))):
            topic = bench.topic()
            member = bench.open(bench.subscription(topic))
            (first,) = _processes(os.getpid())
            os.kill(first, signal.SIGKILL)
            second = _after(bench, first)
            Event().wait(0.02 * (count % 40))
            os.kill(second, signal.SIGKILL)
            logs.clear()
            begun = time.monotonic()
            bench.publish(topic, b"after")
            member.sink.wait_for(1, LISTED)
            seconds = time.monotonic() - begun
            print(f"death {count}: received after {seconds:.1f} s")  # noqa: T201 - figures of the documentation
            assert seconds < bench.harness.patience or any(
                "lists this member twice" in log["event"] for log in logs
            )
            bench.close(member)


def _after(bench: Bench, ended: int) -> int:
    found = set[int]()
    bench.eventually(
        lambda: bool(found.update(_processes(os.getpid())) or found - {ended}), "the next process"
    )
    (process,) = found - {ended}
    return process


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
