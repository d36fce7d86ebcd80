"""What the embedded adapter does beyond the contract that the suite tests."""

import signal
import sqlite3
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

from oncemq.contracts.adapter import Refused, Subscription
from oncemq.errors import BrokerRefused, BrokerUnavailable, DeliveryVoid
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite.holder import Holder
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.embedded import EmbeddedAdapter
from support.brokers.embedded import EmbeddedHarness
from support.brokers.embedded_broker import (
    SUBSCRIPTION,
    build,
    consuming,
    eventually,
    publish,
    publishing,
    rows,
    url_of,
)


def test_dead_owners_leases_come_back_at_once(tmp_path: Path):
    """What a killed process held is taken long before its lease of five minutes ends."""
    harness = EmbeddedHarness(tmp_path)
    with publishing(tmp_path / "broker.db") as publisher:
        publisher.prepare([SUBSCRIPTION])
        publish(publisher, b"x", b"y")
        with Holder(harness, SUBSCRIPTION, count=2) as holder:
            holder.wait_until_holding(20)
            holder.kill()
    with consuming(tmp_path / "broker.db") as (_, sink):
        started = monotonic()
        assert all(delivery.message.redelivered for delivery in sink.wait_for(2, timeout=5))
        assert monotonic() - started < 2


def test_confirmed_survives_sigkill_of_the_publisher(tmp_path: Path):
    """Everything that a publisher saw confirmed before it was killed is there."""
    path = tmp_path / "broker.db"
    script = textwrap.dedent(f"""
        from support.brokers.embedded_broker import build, publish
        adapter = build({url_of(path)!r})
        adapter.prepare([])
        number = 0
        while True:
            publish(adapter, str(number).encode())
            print(number, flush=True)
            number += 1
    """)
    tests = str(Path(__file__).parents[3])
    child = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{script}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    for _ in range(50):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    confirmed = 50 + len(child.stdout.read().splitlines())
    child.wait()
    child.stdout.close()
    with consuming(path) as (_, sink):
        bodies = [delivery.message.body for delivery in sink.wait_for(confirmed)]
    assert bodies[:confirmed] == [str(number).encode() for number in range(confirmed)]
    assert len(bodies) <= confirmed + 1


def test_busy_file_keeps_our_deliveries(tmp_path: Path):
    """While another process writes for too long a settlement fails, and works on the same delivery later."""
    path = tmp_path / "broker.db"
    with consuming(path, lock_timeout="50ms") as (adapter, sink):
        publish(adapter, b"x")
        deliveries = sink.wait_for(1)
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        (failed,) = adapter.acknowledge(deliveries)
        assert isinstance(failed.error, BrokerUnavailable)
        rival.execute("COMMIT")
        rival.close()
        assert adapter.acknowledge(deliveries) == []
        assert sink.losses() == []
    assert rows(path, "SELECT count(*) FROM oncemq_broker_deliveries") == [(0,)]


def test_stale_delivery_of_a_replaced_file_settles_nothing(tmp_path: Path):
    """A new file with the same numbers in it does not fall for an old delivery."""
    path, spare = tmp_path / "broker.db", tmp_path / "spare.db"
    for file, body in ((path, b"old"), (spare, b"new")):
        with publishing(file) as publisher:
            publish(publisher, body)
    with consuming(path) as (adapter, sink):
        (old,) = sink.wait_for(1)
        for part in ("-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
        spare.rename(path)
        (_, new) = sink.wait_for(2)
        assert new.message.body == b"new"
        (failed,) = adapter.acknowledge([old])
        assert isinstance(failed.error, DeliveryVoid)
        assert adapter.acknowledge([new]) == []


def test_publisher_with_no_group_loses_nothing(tmp_path: Path):
    """Publish before the first run, as a newcomer does it."""
    path = tmp_path / "broker.db"
    with publishing(path) as publisher:
        publish(publisher, b"1", b"2")
        publish(publisher, b"3")
    with consuming(path) as (_, sink):
        assert [delivery.message.body for delivery in sink.wait_for(3)] == [b"1", b"2", b"3"]


def test_too_large_body_is_refused_alone(tmp_path: Path):
    """A body over max_body is refused by size and limit; its neighbours are confirmed."""
    with publishing(tmp_path / "broker.db", max_body=10) as publisher:
        big, small = publisher.publish("topic", {}, [OutgoingMessage(b"x" * 11), OutgoingMessage(b"x")])
        assert isinstance(big, Refused)
        assert isinstance(big.error, BrokerRefused)
        assert "11 bytes" in str(big.error)
        assert not isinstance(small, Refused)


def test_any_text_survives_in_headers(tmp_path: Path):
    """NUL and lone surrogates in headers, key and id come back as they were."""
    nasty = OutgoingMessage(b"", {"n\0": "\ud800", "": "\0"}, key="\udfff", message_id="\0")
    with consuming(tmp_path / "broker.db") as (adapter, sink):
        adapter.publish("topic", {}, [nasty])
        message = sink.wait_for(1)[0].message
    assert (message.headers, message.keys, message.message_id) == (nasty.headers, ("\udfff",), "\0")


def test_memory_is_shared_by_name():
    """Adapters of one name share a broker in memory, those of another name do not."""
    first, second, other = (
        build("embedded://shared-a"),
        build("embedded://shared-a"),
        build("embedded://shared-b"),
    )
    sink, other_sink = RecordingSink(), RecordingSink()
    try:
        first.open([SUBSCRIPTION], sink)
        other.open([SUBSCRIPTION], other_sink)
        second.prepare([])
        publish(second, b"x")
        assert sink.wait_for(1)[0].message.body == b"x"
        assert other_sink.stays_at(0, 0.1)
    finally:
        for adapter in (first, second, other):
            adapter.close(grace=timedelta(seconds=1))


def test_memory_does_not_claim_to_survive():
    """In memory nothing outlives the process, and the adapter does not claim it."""
    assert EmbeddedAdapter.capabilities.survives_restart
    assert not build("embedded://").capabilities.survives_restart


def test_second_open_is_refused(tmp_path: Path):
    """One adapter is opened once."""
    with (
        consuming(tmp_path / "broker.db") as (adapter, sink),
        pytest.raises(BrokerRefused, match="open already"),
    ):
        adapter.open([SUBSCRIPTION], sink)


def test_unknown_group_is_named(tmp_path: Path):
    """Asking for a group that never started says so."""
    with (
        publishing(tmp_path / "broker.db") as adapter,
        pytest.raises(BrokerRefused, match=r"no group 'g' of topic 't'"),
    ):
        adapter.depth(Subscription("c", "t", "g"))


def test_an_idle_adapter_hardly_works(tmp_path: Path):
    """Waiting for messages writes nothing."""
    with consuming(tmp_path / "broker.db") as (adapter, sink):
        session = adapter._link.current()
        eventually(lambda: adapter.health()[0].subscribed, "a first look")
        before = session.database.commits
        assert sink.stays_at(0, 0.7)
        assert session.database.commits == before
