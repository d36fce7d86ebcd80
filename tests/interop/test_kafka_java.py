"""A service in Java on the same topics sees keys, headers and partitions as we do: the official client is the judge."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite import Topic
from oncemq.testing.adapter_suite.bench import Bench, numbered
from oncemq_adapters.kafka.names import Place, place_of
from services.servers import rocketmq_jars
from services.servers.kafka import class_path
from support.brokers.java_peer import KafkaPeer, Received, compiled
from support.brokers.kafka import SharedKafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 7
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def java(kafka_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A Java process, for all tests."""
    with (
        compiled(tmp_path_factory.mktemp("peer"), KafkaPeer) as classes,
        KafkaPeer(kafka_url, classes) as peer,
    ):
        yield peer


class Meeting(Bench):
    """A topic of our own, known to Java by its name on the server."""

    def __init__(self, url: str) -> None:
        super().__init__(SharedKafka(url))
        self.here = Topic(self.topic().name, {"partitions": PARTITIONS})
        self.consumer = self.subscription(self.here)
        self.place: Place = place_of(self.consumer, self.harness.options["namespace"])
        self.prepare(self.consumer)


@pytest.fixture
def meeting(kafka_url: str) -> Iterator[Meeting]:
    """Yield one on the shared server."""
    meeting = Meeting(kafka_url)
    yield meeting
    meeting.close_all()


def told(java: KafkaPeer, count: int, *order: object) -> list[Received]:
    """Return what Java says about an order."""
    before = len(java.received)
    java.order(*order)
    return java.wait_for(before + count)[before:]


def places(rows: list[Received]) -> dict[str, str]:
    """Return the partition of each key."""
    return {row.properties["java.key"]: row.properties["java.partition"] for row in rows}


def test_both_choose_the_same_partition_for_a_key(meeting: Meeting, java: KafkaPeer) -> None:
    """By either client: messages of one key are in one partition, so their order is one."""
    topic = meeting.place.topic.name
    keys = [f"größe-{number}" for number in range(40)]
    chosen = places(told(java, 40, "produce", topic, 40, "größe-", "none"))
    meeting.publish(meeting.here, *(OutgoingMessage(key.encode(), key=key) for key in keys))
    rows = told(java, 80, "read", topic, 80)
    ours = places([row for row in rows if not row.body.startswith(b"{")])
    assert ours == chosen
    assert len(set(chosen.values())) == PARTITIONS


def test_what_java_sends_is_read_whole(meeting: Meeting, java: KafkaPeer) -> None:
    """Key, body and headers, in every compression that Java has."""
    for name in COMPRESSIONS:
        told(java, 2, "produce", meeting.place.topic.name, 2, f"{name}-", name)
    member = meeting.open(meeting.consumer)
    messages = [delivery.message for delivery in meeting.receive(member, 10)]
    keys = [f"{name}-{number}" for name in COMPRESSIONS for number in range(2)]
    assert sorted(message.keys[0] for message in messages) == sorted(keys)
    for message in messages:
        assert message.body == b'{"key": "%s"}' % message.keys[0].encode()
        assert dict(message.headers) == {"tenant": "größe 🚕", "raw": "\\xff", "none": ""}


def test_what_we_send_is_read_by_java(meeting: Meeting, java: KafkaPeer) -> None:
    """Key, body and headers are what every client expects: bytes in UTF-8."""
    sent = OutgoingMessage(b"body", key="größe", headers={"tenant": "größe 🚕"}, message_id="one")
    meeting.publish(meeting.here, sent)
    (row,) = told(java, 1, "read", meeting.place.topic.name, 1)
    assert (row.body, row.properties["java.key"], row.properties["tenant"]) == (b"body", "größe", "größe 🚕")
    assert row.properties["oncemq-message-id"] == "one"


def test_java_finds_the_groups_offsets(meeting: Meeting, java: KafkaPeer) -> None:
    """A Java member that takes over begins where we ended, whatever our metadata says."""
    topic = meeting.place.topic.name
    chosen = places(told(java, 20, "produce", topic, 20, "k", "none"))
    member = meeting.open(meeting.consumer)
    meeting.settled(member.adapter.acknowledge(meeting.receive(member, 20)))
    meeting.close(member)
    rows = told(java, PARTITIONS, "committed", meeting.place.group, topic)
    offsets = {row.properties["java.partition"]: int(row.body) for row in rows}
    assert {partition: max(0, offset) for partition, offset in offsets.items()} == {
        str(number): list(chosen.values()).count(str(number)) for number in range(PARTITIONS)
    }


def test_kafkas_own_tool_tells_the_groups_lag(meeting: Meeting, kafka_url: str, tmp_path: Path) -> None:
    """What `kafka-consumer-groups.sh --describe` starts shows offset, end and lag, with a message settled out of order."""
    meeting.publish(meeting.here, *(OutgoingMessage(body, key="one") for body in numbered(10)))
    member = meeting.open(meeting.consumer)
    held = meeting.receive(member, 10)
    meeting.settled(member.adapter.acknowledge([*held[:6], held[8]]))
    meeting.close(member)
    address = urlsplit(kafka_url)
    login = f'username="{address.username}" password="{address.password}"'
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {login};\n"
    )
    told = subprocess.run(
        [
            rocketmq_jars.java() or "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path(),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", f"{address.hostname}:{address.port}",
            "--command-config", str(settings), "--describe", "--group", meeting.place.group,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    rows = [line.split() for line in told.stdout.splitlines() if meeting.place.topic.name in line.split()]
    # Group, topic, partition, offset, end, lag …
    assert [row[3:6] for row in rows if row[4] == "10"] == [["6", "10", "4"]]
