"""RocketMQ's client alone, as its page shows it, held against a real server."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from oncemq_adapters.rocketmq_client import Client, Cluster, Denied, Outgoing, RocketMQUnavailable

PAGE = Path(__file__).parents[3] / "docs/rocketmq-client.md"
REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "oncemq" or name.startswith("oncemq."):
            raise ModuleNotFoundError(f"the framework is imported: {name}")

sys.meta_path.insert(0, Refuse())
"""


def cluster_of(url: str) -> Cluster:
    """Return the servers behind a URL."""
    parts = urlsplit(url)
    return Cluster(
        name_servers=(f"{parts.hostname}:{parts.port}",),
        username=parts.username or "",
        password=parts.password or "",
    )


def run_alone(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that cannot import the framework."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", REFUSING + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def client(rocketmq_url: str) -> Iterator[Client]:
    """A client that is closed at the end."""
    with Client(cluster_of(rocketmq_url), group="tests") as found:
        yield found


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of this test's own, with one queue."""
    name = f"client-{uuid4().hex[:8]}"
    client.create_topic(name, queues=1)
    return name


def test_the_program_of_the_page_runs_without_the_framework(rocketmq_url: str) -> None:
    """It prints what it published, once: a second run begins behind the committed offsets."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    cluster, mark = cluster_of(rocketmq_url), uuid4().hex[:8]
    program = program.replace(
        'name_servers=("localhost:9876",)',
        f"name_servers={cluster.name_servers}, username={cluster.username!r}, password={cluster.password!r}",
    )
    program = program.replace('"orders"', f'"orders-{mark}"').replace('"points"', f'"points-{mark}"')
    for times in (1, 2):
        ended = run_alone(program)
        assert (ended.returncode, ended.stderr) == (0, "")
        *orders, first, second = ended.stdout.splitlines()
        assert sorted(orders) == ["order-1 paid", "order-2 paid", "order-3 paid"]
        assert sum(int(line.split()[1]) for line in (first, second)) == 3 * times


def test_the_framework_is_really_refused() -> None:
    """A program that imports it ends with an error; else the test of the page would prove nothing."""
    ended = run_alone("import oncemq_adapters.rocketmq")
    assert "the framework is imported" in ended.stderr


def test_a_pull_waits_for_the_next_message(client: Client, topic: str) -> None:
    """The broker holds the request, and answers it when a message is stored."""
    (queue,) = client.queues(topic)
    assert client.pull("g", topic, queue, 0) == ((), 0)
    client.send([Outgoing(topic, b"1", {}, delay=timedelta(seconds=1))])
    pull = client.pull("g", topic, queue, 0, wait=timedelta(seconds=10))
    assert ([message.body for message in pull.messages], pull.following) == ([b"1"], 1)


def test_an_offset_is_committed_for_a_group(client: Client, topic: str) -> None:
    """A group has none at first, and is made by its first commit."""
    group, (queue,) = f"g-{uuid4().hex[:8]}", client.queues(topic)
    assert client.committed(group, topic, queue) is None
    client.send([Outgoing(topic, b"1", {})])
    client.commit(group, topic, queue, 1)
    assert client.committed(group, topic, queue) == 1


def test_a_topic_is_looked_at(client: Client, topic: str) -> None:
    """Each queue says what it holds, and where a moment is in it."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert client.send([Outgoing(topic, body, {}) for body in (b"1", b"2")]) == [None, None]
    (state,) = client.look_at(topic)
    assert (state.first, state.following) == (0, 2)
    assert client.offset_at(topic, state.queue, before) == 0


def test_a_missing_topic_is_denied(client: Client) -> None:
    """The error is the client's own, with the code of the protocol."""
    with pytest.raises(Denied) as denied:
        client.queues(f"missing-{uuid4().hex[:8]}")
    assert denied.value.code == 17


def test_servers_that_are_away_are_unavailable() -> None:
    """Nothing is raised before the first request."""
    with Client(Cluster(name_servers=("127.0.0.1:1",)), group="tests") as client:
        (error,) = client.send([Outgoing("orders", b"1", {})])
        assert isinstance(error, RocketMQUnavailable)
        with pytest.raises(RocketMQUnavailable):
            client.connect()
