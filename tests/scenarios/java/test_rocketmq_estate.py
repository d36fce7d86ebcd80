"""An estate: Java's producers with all that they do, Java's members and ours in one group, under authorization, through a dead master and a reset."""

import os
import sqlite3
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.contracts.adapter import Confirmed, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq import RocketMQAdapter
from services.servers.rocketmq import BROKER, RocketMQPair
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.java_peer import JavaPeer, Received, compiled
from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_bench import account_url
from support.servers import own_server

MESSAGES = int(os.environ.get("ONCEMQ_ESTATE", "12"))
"""Of each kind; divisible by three. `make estate` has more."""
LINES = 4
PACKINGS = {"-": "71", "ZLIB": "72", "LZ4": "73", "ZSTD": "74"}
DELAYED, TRANSACTED, EARLY, LATE, OTHER_TAG = "75", "76", "77", "78", "79"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(600 + MESSAGES),
    pytest.mark.long_form("ONCEMQ_ESTATE"),
]

APP = """\
app: {name}
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  {name}:
    key: "keys[0]"
    identity: ["keys[0]"]
    tags: fromJava || ours
    strategies: [unique_key: {{also_seen_in: {{table: done, columns: {{id: "keys[0]"}}}}}}]
  {name}-lines:
    key: "keys[0]"
    identity: ["keys[0]"]
    fifo: true
    strategies: [unique_key: {{also_seen_in: {{table: done, columns: {{id: "keys[0]"}}}}}}]
defaults:
  retry: {{attempts: 20, backoff: {{first: 100ms, max: 1s}}}}
consumers:
  events: {{topic: {name}, group: {name}, handler: "handlers:handle"}}
  lines: {{topic: {name}-lines, group: {name}-lines, handler: "handlers:handle"}}
"""
HANDLERS = """
import time

from sqlalchemy import text
from sqlalchemy.orm import Session


def handle(event: int, session: Session) -> None:
    values = {"id": str(event), "at": int(time.time() * 1000)}
    session.execute(text("INSERT INTO done (id) VALUES (:id)"), values)
    session.execute(text("INSERT INTO effects (id, at, side) VALUES (:id, :at, 'ours')"), values)
"""


class Service(JavaPeer):
    """A Java service that notes in the database what it has done, as a listener against doublets does, and does no event again."""

    database: Path

    def _take(self, message: Received) -> Received:
        event, at = message.body.decode(), int(message.properties["member.handled"])
        with sqlite3.connect(self.database, timeout=60) as connection:
            if connection.execute("INSERT OR IGNORE INTO done (id) VALUES (?)", [event]).rowcount:
                connection.execute("INSERT INTO effects (id, at, side) VALUES (?, ?, 'java')", [event, at])
        return message


class Estate:
    """Two brokers, an app with the rights of a consumer, and an account for a Java service."""

    def __init__(self, servers: RocketMQPair, folder: Path, name: str) -> None:
        self.servers, self.name = servers, name
        self.database, self.lines = folder / "shop.db", f"{name}-lines"
        login, _, places = servers.url.rpartition("@")
        url = f"{login}@{places.partition(',')[0]}"
        self.expected: set[str] = set()
        self.subscriptions = [
            Subscription("events", name, name, {"create": True, "queues": 2, "tags": ["fromJava", "ours"]}),
            Subscription("lines", self.lines, self.lines, {"create": True, "queues": 2, "fifo": True}),
        ]
        self.administrator: RocketMQAdapter = adapter_on(url)
        self.administrator.prepare(self.subscriptions)
        groups = {f"Group:{each.group}": "Sub" for each in self.subscriptions}
        topics = [f"Topic:{each.topic}" for each in self.subscriptions]
        ours = account_url(url, **dict.fromkeys(topics, "Sub"), **groups)
        # A broker asks about a transaction in the name of the topic where it waits, and so Java's client answers.
        topics += ["Topic:RMQ_SYS_TRANS_HALF_TOPIC"]
        self.java_url = account_url(url, **dict.fromkeys(topics, "Pub,Sub"), **groups)
        (folder / "app.yaml").write_text(APP.format(name=name, url=ours, folder=folder))
        (folder / "handlers.py").write_text(HANDLERS)
        with sqlite3.connect(self.database) as connection:
            connection.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
            connection.execute("CREATE TABLE effects (id TEXT, at REAL, side TEXT)")
        self.program = WarmProgram(folder)
        self.program.succeed("tables", "create")

    def produce(self, java: JavaPeer, wave: int) -> None:
        """Have Java publish with every codec, and with a delay."""
        for packing, kind in PACKINGS.items():
            # Long enough to be packed.
            prefix = f"{kind}0000000000{wave}"
            java.order("produce", self.name, MESSAGES, prefix, packing)
            self.expected |= {f"{prefix}{number}" for number in range(MESSAGES)}
        java.order("delay", self.name, f"{DELAYED}{wave}", 1500)
        self.expected.add(f"{DELAYED}{wave}")

    def transact(self, java: JavaPeer) -> None:
        """Have Java publish in transactions that it commits, forgets until it is asked, and rolls back."""
        java.order("transact", self.name, MESSAGES, TRANSACTED)
        self.expected |= {f"{TRANSACTED}{number}" for number in range(MESSAGES) if number % 3 != 2}

    def produce_lines(self, java: JavaPeer) -> None:
        """Have Java publish lines, each in its order."""
        java.order("lines", self.lines, MESSAGES, "8", LINES)
        self.expected |= {f"8{line}{number:04d}" for line in range(LINES) for number in range(MESSAGES)}

    def publish(self, tag: str, *events: str) -> None:
        """Publish as an administrator does, with a tag."""
        messages = [OutgoingMessage(event.encode(), {"tags": tag}, event) for event in events]
        answers = self.administrator.publish(self.name, {}, messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers

    def both_consume(self) -> bool:
        """Return whether both sides had some of the events; publishes more."""
        event = f"{EARLY}{len(self.expected)}"
        self.publish("ours", event)
        self.expected.add(event)
        return {side for _, _, side in self.effects()} == {"ours", "java"}

    def effects(self) -> list[tuple[str, float, str]]:
        """Return what was applied: the event, when, and by which side."""
        with sqlite3.connect(self.database, timeout=60) as connection:
            return list(connection.execute("SELECT id, at, side FROM effects"))

    def settled(self) -> bool:
        """Return whether every event has an effect, and nothing waits for the groups."""
        done = self.expected <= {event for event, _, _ in self.effects()}
        return done and not any(self.administrator.depth(each) for each in self.subscriptions)

    def missing(self) -> str:
        """Say what has no effect yet."""
        depths = [self.administrator.depth(each) for each in self.subscriptions]
        found = {event for event, _, _ in self.effects()}
        return f"{self.program.log.read_text()[-1500:]}\nmissing {sorted(self.expected - found)[:20]}, waiting {depths}"

    def reset(self) -> None:
        """Have RocketMQ's tool set the group back to the beginning, for all of its members."""
        command = self.servers.administration(
            "resetOffsetByTime", "-g", self.name, "-t", self.name, "-s", "0"
        )
        subprocess.run(command, capture_output=True, check=True, timeout=120)


@pytest.fixture
def estate(tmp_path: Path, fresh: str) -> Iterator[Estate]:
    """On servers of its own."""
    with own_server(RocketMQPair) as servers:
        estate = Estate(servers, tmp_path, fresh)
        yield estate
        estate.administrator.close(grace=timedelta(seconds=2))


def test_every_event_has_one_effect(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> None:
    """And every line its order: codecs, tags, delays, transactions, a dead master and a reset under ACL 2.0, Java and we in one group."""
    Service.database = estate.database
    with (
        compiled(tmp_path_factory.mktemp("peer")) as classes,
        Service(estate.java_url, classes) as java,
        estate.program.started("run", "--processes", "1") as running,
    ):
        eventually(lambda: running.said().count("consumer started") == 2, "our members", said=running.said)
        java.order("consume", estate.name, estate.name, "tags=fromJava||ours")
        java.order("consume", estate.lines, estate.lines, "orderly")
        eventually(estate.both_consume, "both sides to consume", said=estate.missing)
        estate.transact(java)
        estate.produce(java, 1)
        estate.publish("stranger", OTHER_TAG)
        estate.produce_lines(java)
        estate.servers.kill_only(BROKER)
        estate.produce(java, 2)
        estate.servers.start()
        eventually(estate.settled, "every effect", said=estate.missing)
        before = len(java.received)
        estate.reset()
        eventually(lambda: len(java.received) > before, "messages that come to Java again")
        eventually(lambda: "reset by an administrator" in running.said(), "our reset", said=running.said)
        estate.publish("ours", LATE)
        estate.expected.add(LATE)
        eventually(estate.settled, "the end of the reset", said=estate.missing)
    effects = estate.effects()
    assert Counter(event for event, _, _ in effects) == dict.fromkeys(estate.expected, 1)
    assert {side for _, _, side in effects} == {"ours", "java"}
    assert_in_order(effects)


def assert_in_order(effects: list[tuple[str, float, str]]) -> None:
    """Assert that each line's events were handled in their order."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event, at, _ in effects:
        if event.startswith("8"):
            lines[event[1]].append((int(event[2:]), at))
    assert len(lines) == LINES
    for line in lines.values():
        times = [at for _, at in sorted(line)]
        assert times == sorted(times)
