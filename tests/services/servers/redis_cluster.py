"""A Redis Cluster of three masters with a replica each: born complete, from node files that know each other."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.servers.redis import Redis, ask, plain_settings

MASTERS = 3
NODES = 2 * MASTERS
SLOTS = 16384


class RedisCluster(Redis):
    """Six nodes; those after the third are the replicas of the first three. Needs Redis 7 or newer."""

    kind: ClassVar[str] = "redis-cluster"
    variable: ClassVar[str] = "ONCEMQ_TEST_REDIS_CLUSTER"
    # Ports of their own for the cluster's bus: the usual ones, 10000 higher, may be anybody's.
    port_names: ClassVar[Sequence[str]] = (
        *(f"node-{number}" for number in range(1, NODES + 1)),
        *(f"bus-{number}" for number in range(1, NODES + 1)),
    )

    @property
    def ports(self) -> list[int]:
        """The ports of the nodes; masters first, when nothing has failed over."""
        return list(self.settings.ports.values())[:NODES]

    @property
    def url(self) -> str:
        """The URL of the cluster, by the addresses of its three first nodes."""
        places = ",".join(f"{LOOPBACK}:{port}" for port in self.ports[:MASTERS])
        return f"redis+cluster://:{self.settings.password}@{places}"

    def answers(self) -> bool:
        """Return whether every node that runs sees a whole cluster, and every replica its master."""
        return all(self._whole(port) for port in self.ports)

    def prepare(self) -> None:
        """Write each node's configuration and, before its first start, what it knows of the others."""
        for number, port in enumerate(self.ports, 1):
            folder = self._folder(number)
            settings = [
                *(line for line in plain_settings(self) if not line.startswith("port ")),
                f"port {port}",
                f"cluster-port {self.settings.ports[f'bus-{number}']}",
                f"dir {folder}",
                "cluster-enabled yes",
                "cluster-config-file nodes.conf",
                "cluster-node-timeout 3000",
                "repl-diskless-sync-delay 0",
            ]
            self.account.write(folder / "redis.conf", "\n".join(settings) + "\n")
            if not (folder / "nodes.conf").exists():
                self.account.write(folder / "nodes.conf", self._acquaintances(number))

    def launches(self) -> Sequence[Launch]:
        """Return the six nodes."""
        program = super().launches()[0].argv[0]
        return [
            Launch(f"node-{number}", [program, str(self._folder(number) / "redis.conf")], listens_on=port)
            for number, port in enumerate(self.ports, 1)
        ]

    def kill_node(self, port: int) -> None:
        """SIGKILL the node on this port; `start` brings it back."""
        launch = self.launches()[self.ports.index(port)]
        process = self._process(launch)
        if process is None or not process.kill():
            raise ServiceError(f"the node on port {port} does not run, or survived SIGKILL")
        self._forget(launch)

    def _folder(self, number: int) -> Path:
        # Named by its port: on other ports it would be another cluster.
        return self.account.make_folder(self.data / str(self.ports[number - 1]))

    def _whole(self, port: int) -> bool:
        password = self.settings.password
        if "cluster_state:ok" not in ask(port, "CLUSTER", "INFO", password=password):
            return False
        replication = ask(port, "INFO", "replication", password=password)
        return "role:master" in replication or "master_link_status:up" in replication

    def _log_end(self) -> str:
        """Return the ends of the logs, and what those nodes see that do not see a whole cluster."""
        seen = [
            f"--- as seen from port {port}\n{ask(port, 'CLUSTER', 'NODES', password=self.settings.password)}"
            for port in self.ports
            if not self._whole(port)
        ]
        return "\n".join([super()._log_end(), *seen])

    def _acquaintances(self, me: int) -> str:
        lines = [self._line(number, me) for number in range(1, NODES + 1)]
        return "\n".join([*lines, f"vars currentEpoch {MASTERS} lastVoteEpoch 0"]) + "\n"

    def _line(self, number: int, me: int) -> str:
        port, bus = self.ports[number - 1], self.settings.ports[f"bus-{number}"]
        mine = "myself," if number == me else ""
        replica = number > MASTERS
        master = number - MASTERS if replica else number
        role = f"{mine}slave {self._id(master)}" if replica else f"{mine}master -"
        slots = "" if replica else f" {SLOTS * (number - 1) // MASTERS}-{SLOTS * number // MASTERS - 1}"
        return f"{self._id(number)} {LOOPBACK}:{port}@{bus} {role} 0 0 {master} connected{slots}"

    def _id(self, number: int) -> str:
        return hashlib.sha1(f"{self.folder.resolve()} {self.ports[number - 1]}".encode()).hexdigest()
