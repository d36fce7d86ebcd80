"""RabbitMQ: where its programs are, how it is set up and asked. It brings an epmd of its own."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.protocols import amqp
from services.server import Server

USER = PASSWORD = "guest"
# Two shared cores: idle schedulers must sleep at once instead of spinning.
ERLANG_ARGUMENTS = "-noinput -start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"


class RabbitMQ(Server):
    """One RabbitMQ node, named after its folder, with the user `guest`."""

    kind: ClassVar[str] = "rabbitmq"
    variable: ClassVar[str] = "ONCEMQ_TEST_RABBITMQ"
    packages: ClassVar[Sequence[str]] = ("rabbitmq-server",)
    port_names: ClassVar[Sequence[str]] = ("amqp", "epmd", "distribution")
    users: ClassVar[Sequence[str]] = ("rabbitmq",)
    plugins: ClassVar[Sequence[str]] = ()

    @classmethod
    def installed(cls) -> bool:
        """Return whether the server's own script and epmd are found."""
        return _script() is not None and shutil.which("epmd") is not None

    @property
    def url(self) -> str:
        """The URL of the virtual host `/`."""
        return f"amqp://{USER}:{PASSWORD}@{LOOPBACK}:{self.port}/"

    def answers(self) -> bool:
        """Return whether a connection to the virtual host is opened."""
        return amqp.answers(self.port, user=USER, password=PASSWORD)

    def prepare(self) -> None:
        """Write the configuration; the node makes its data itself."""
        lines = [
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}",
            # Alarms would block publishers on a full developer's machine; tests that want one raise it themselves.
            "disk_free_limit.absolute = 1MB",
            "vm_memory_high_watermark.relative = 0.8",
            "log.console = true",
            "log.file = false",
            *self.settings_of_plugins(),
        ]
        self.account.write(self.data / "rabbitmq.conf", "\n".join(lines) + "\n")
        self.account.write(self.data / "plugins", f"[{','.join(self.plugins)}].\n")
        self.account.write(self.data / "environment.conf", "")

    def launches(self) -> Sequence[Launch]:
        """Return epmd, then the node."""
        script = _script()
        epmd = shutil.which("epmd")
        if script is None or epmd is None:
            raise ServiceError("RabbitMQ is not installed. Run `make services`.")
        epmd_port = self.settings.ports["epmd"]
        mapper = [epmd, "-address", LOOPBACK, "-port", str(epmd_port)]
        return [
            Launch("epmd", mapper, listens_on=epmd_port),
            Launch("rabbitmq", [str(script)], self.environment),
        ]

    def settings_of_plugins(self) -> Sequence[str]:
        """Return further lines of the configuration."""
        return ()

    @property
    def node(self) -> str:
        """The node's name, different for every folder on this machine."""
        return f"oncemq-{hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:10]}@localhost"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the node; rabbitmqctl needs the same."""
        data = self.data
        return {
            "HOME": str(data),
            "ERL_EPMD_PORT": str(self.settings.ports["epmd"]),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self.settings.ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": str(data / "environment.conf"),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_PID_FILE": str(data / "rabbitmq.pid"),
            # Lets the script replace itself by the node, so that its pid is the node's.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_ARGUMENTS,
        }


class ManagedRabbitMQ(RabbitMQ):
    """One with the management API, for tests that ask it; it starts two seconds later than one without."""

    kind: ClassVar[str] = "managed-rabbitmq"
    port_names: ClassVar[Sequence[str]] = (*RabbitMQ.port_names, "management")
    plugins: ClassVar[Sequence[str]] = ("rabbitmq_management",)
    in_container: ClassVar[bool] = False

    @property
    def management(self) -> str:
        """URL of the management API."""
        return f"http://{LOOPBACK}:{self.settings.ports['management']}"

    def settings_of_plugins(self) -> Sequence[str]:
        """Return where the API listens."""
        return (
            f"management.tcp.ip = {LOOPBACK}",
            f"management.tcp.port = {self.settings.ports['management']}",
        )


class RabbitMQTrio(RabbitMQ):
    """A cluster of three nodes, whose quorum queues outlive one of them; a node without the majority pauses itself."""

    kind: ClassVar[str] = "rabbitmq-trio"
    port_names: ClassVar[Sequence[str]] = (
        *RabbitMQ.port_names,
        *(f"{name}-{number}" for number in (2, 3) for name in ("amqp", "distribution")),
    )
    in_container: ClassVar[bool] = False
    numbers: ClassVar[Sequence[int]] = (1, 2, 3)

    def address(self, number: int) -> str:
        """Return host and port of a node, counted from 1."""
        return f"{LOOPBACK}:{self._port('amqp', number)}"

    def answers(self) -> bool:
        """Return whether each node takes connections; they do once they are part of the cluster."""
        return all(
            amqp.answers(self._port("amqp", number), user=USER, password=PASSWORD) for number in self.numbers
        )

    def prepare(self) -> None:
        """Write the configuration of each node, with the names of all."""
        super().prepare()
        common = (self.data / "rabbitmq.conf").read_text().splitlines()[1:]
        members = [
            f"cluster_formation.classic_config.nodes.{number} = {self._name(number)}"
            for number in self.numbers
        ]
        for number in self.numbers:
            lines = [
                f"listeners.tcp.1 = {self.address(number)}",
                *common,
                *members,
                "cluster_formation.peer_discovery_backend = classic_config",
                "cluster_partition_handling = pause_minority",
                # A node that does not answer is given up after 4 s instead of 60.
                "net_ticktime = 4",
            ]
            self.account.write(self._own(number) / "rabbitmq.conf", "\n".join(lines) + "\n")

    def launches(self) -> Sequence[Launch]:
        """Return epmd, then the nodes."""
        mapper, single = super().launches()
        nodes = [
            Launch(
                f"node-{number}",
                single.argv,
                {
                    **self.environment,
                    "RABBITMQ_NODENAME": self._name(number),
                    "RABBITMQ_DIST_PORT": str(self._port("distribution", number)),
                    "RABBITMQ_CONFIG_FILE": str(self._own(number) / "rabbitmq.conf"),
                    "RABBITMQ_MNESIA_BASE": str(self._own(number) / "mnesia"),
                    "RABBITMQ_LOG_BASE": str(self._own(number) / "log"),
                    "RABBITMQ_PID_FILE": str(self._own(number) / "rabbitmq.pid"),
                },
                # The first one makes the cookie that the others need, which then start side by side.
                listens_on=self._port("amqp", number) if number == 1 else None,
            )
            for number in self.numbers
        ]
        return [mapper, *nodes]

    def _name(self, number: int) -> str:
        name, _, host = self.node.partition("@")
        return f"{name}-{number}@{host}"

    def _port(self, name: str, number: int) -> int:
        return self.settings.ports[name if number == 1 else f"{name}-{number}"]

    def _own(self, number: int) -> Path:
        return self.account.make_folder(self.data / f"node-{number}")


def _script() -> Path | None:
    """Return RabbitMQ's own script; the one in Debian's PATH insists on Debian's user and folders."""
    places = [*Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")]
    if found := shutil.which("rabbitmq-server"):
        places.append(Path(found))
    return next((place for place in places if place.exists()), None)
