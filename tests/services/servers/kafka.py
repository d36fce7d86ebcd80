"""Kafka: nodes that are broker and controller, set up small and asked for their API versions; one of them, or three."""

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services.account import Account
from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.server import Server
from services.servers import rocketmq_jars

VERSION = "4.1.2"
_PLACE = rocketmq_jars.FOLDER / f"kafka-{VERSION}"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_LOG = """<Configuration>
  <Appenders><Console name="out"><PatternLayout pattern="%d %-5level %msg%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class Kafka(Server):
    """One node with SASL; clients reach it directly, or by what a test puts on the port `proxy`."""

    kind: ClassVar[str] = "kafka"
    variable: ClassVar[str] = "ONCEMQ_TEST_KAFKA"
    packages: ClassVar[Sequence[str]] = ("default-jre-headless", "maven")
    port_names: ClassVar[Sequence[str]] = ("kafka", "controller", "proxied", "proxy")
    users: ClassVar[Sequence[str]] = ()
    start_seconds: ClassVar[float] = 180
    # A broker tells clients its own address, which is another one outside of the container.
    in_container: ClassVar[bool] = False
    user: ClassVar[str] = "oncemq"
    suffixes: ClassVar[Sequence[str]] = ("",)
    """One for each node, at the names of its process, ports and files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Java minds no root, and must read the jars wherever the checkout stands.
        self.account = Account.ourselves()

    @classmethod
    def installed(cls) -> bool:
        """Return whether Java is there, and the jars or a Maven to fetch them."""
        return rocketmq_jars.available(_PLACE)

    @property
    def url(self) -> str:
        """The URL with the account that the broker knows."""
        return f"kafka://{self.user}:{self.settings.password}@{LOOPBACK}:{self.port}"

    @property
    def format_options(self) -> Sequence[str]:
        """What else the tool is told that formats the log folder."""
        return ()

    @property
    def proxied_url(self) -> str:
        """The same through the port of a test's proxy, whose address the broker then tells."""
        return f"kafka://{self.user}:{self.settings.password}@{LOOPBACK}:{self.settings.ports['proxy']}"

    def answers(self) -> bool:
        """Return whether every node tells its API versions."""
        return all(_answers(self.settings.ports[f"kafka{suffix}"]) for suffix in self.suffixes)

    def prepare(self) -> None:
        """Fetch the jars where they are missing, write the configuration, and format the log folders once."""
        data, cluster = self.data, short_id()
        self.account.write(data / "log4j2.xml", _LOG)
        for suffix in self.suffixes:
            file = self.account.write(
                data / _configuration(suffix), "".join(_lines(self._properties(suffix)))
            )
            if not (data / f"logs{suffix}" / "meta.properties").exists():
                self._format(file, cluster)

    def launches(self) -> Sequence[Launch]:
        """Return the nodes."""
        java = self._java("-Xms96m", "-Xmx256m", "-XX:TieredStopAtLevel=1")
        return [
            Launch(f"kafka{suffix}", [*java, "kafka.Kafka", str(self.data / _configuration(suffix))])
            for suffix in self.suffixes
        ]

    def tool(self, name: str, *arguments: str) -> list[str]:
        """Return the command that runs one of Kafka's own tools, by the name of its class."""
        return [*self._java("-Xmx128m", "-XX:TieredStopAtLevel=1"), name, *arguments]

    def _format(self, properties: Path, cluster: str) -> None:
        arguments = ["format", "--cluster-id", cluster, "--config", str(properties), "--ignore-formatted"]
        arguments += self.format_options
        done = subprocess.run(
            self.tool("kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(
                f"Kafka's log folder cannot be formatted:\n{(done.stdout + done.stderr)[-3000:]}"
            )

    def _java(self, *options: str) -> list[str]:
        program = rocketmq_jars.java()
        if program is None:
            raise ServiceError("Kafka needs Java, which is not installed. Run `make services`.")
        return [
            program, "-Djava.net.preferIPv4Stack=true", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", *options,
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.xml'}",
            "-cp", class_path(),
        ]  # fmt: skip

    def _properties(self, suffix: str = "") -> Mapping[str, object]:
        ports = {
            name: self.settings.ports[f"{name}{suffix}"]
            for name in ("kafka", "controller", "proxied", "proxy")
        }
        controllers = [self.settings.ports[f"controller{other}"] for other in self.suffixes]
        voters = [f"{number}@{LOOPBACK}:{port}" for number, port in enumerate(controllers, 1)]
        copies = len(self.suffixes)
        login = f'username="{self.user}" password="{self.settings.password}"'
        jaas = f'{_PLAIN} {login} user_{self.user}="{self.settings.password}";'
        return {
            "process.roles": "broker,controller",
            "node.id": self.suffixes.index(suffix) + 1,
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": (
                f"CLIENT://{LOOPBACK}:{ports['kafka']},PROXIED://{LOOPBACK}:{ports['proxied']},"
                f"CONTROLLER://{LOOPBACK}:{ports['controller']}"
            ),
            "advertised.listeners": (
                f"CLIENT://{LOOPBACK}:{ports['kafka']},PROXIED://{LOOPBACK}:{ports['proxy']},"
                f"CONTROLLER://{LOOPBACK}:{ports['controller']}"
            ),
            "inter.broker.listener.name": "CLIENT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": jaas,
            "listener.name.proxied.plain.sasl.jaas.config": jaas,
            "log.dirs": self.data / f"logs{suffix}",
            "num.partitions": 4,
            "message.max.bytes": 16 * 1024 * 1024,
            "offsets.topic.num.partitions": 4,
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 2,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": 1,
            # Members of tests come, go and die; people wait longer for more of them.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "group.consumer.min.session.timeout.ms": 1000,
            "group.consumer.session.timeout.ms": 6000,
            "group.consumer.min.heartbeat.interval.ms": 200,
            "group.consumer.heartbeat.interval.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
            "log.segment.bytes": 64 * 1024 * 1024,
            "log.index.size.max.bytes": 256 * 1024,
        }


class KafkaTrio(Kafka):
    """Three nodes, each with a copy of every partition: what goes on when one of them dies."""

    kind: ClassVar[str] = "kafka-trio"
    suffixes: ClassVar[Sequence[str]] = ("-1", "-2", "-3")
    port_names: ClassVar[Sequence[str]] = tuple(
        f"{name}-{number}" for number in (1, 2, 3) for name in Kafka.port_names
    )

    @property
    def url(self) -> str:
        """The URL with all nodes."""
        hosts = ",".join(f"{LOOPBACK}:{self.settings.ports[f'kafka{suffix}']}" for suffix in self.suffixes)
        return f"kafka://{self.user}:{self.settings.password}@{hosts}"

    def node(self, number: int) -> str:
        """Return the name of a node's process, for `kill_only` and `pause`."""
        return f"kafka{self.suffixes[number - 1]}"

    def _properties(self, suffix: str = "") -> Mapping[str, object]:
        return {
            **super()._properties(suffix),
            "min.insync.replicas": 2,
            # A dead node is noticed within seconds.
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": 3000,
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1000,
            "replica.lag.time.max.ms": 5000,
            "group.consumer.session.timeout.ms": 2000,
        }


def class_path() -> str:
    """Return the class path; fetches the jars the first time.

    Raises:
        ServiceError: they cannot be fetched; says why.
    """
    return rocketmq_jars.fetched(_PLACE, "kafka.xml")


def _configuration(suffix: str) -> str:
    return f"server{suffix}.properties"


def _answers(port: int) -> bool:
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(16)) > 8
    except OSError:
        return False


def _lines(settings: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}\n" for name, value in settings.items()]


def short_id() -> str:
    """Return a new id in Kafka's form; none begins with a dash, or its tool would take it for an option."""
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found
