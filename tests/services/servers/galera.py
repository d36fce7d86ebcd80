"""A Galera cluster of three MariaDB servers that all take writes: a commit on one is checked by the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services.ports import LOOPBACK
from services.process import Launch
from services.servers.mariadb import MariaDB

NODES = 3
PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
_PORTS = ("sql", "group", "ist", "sst")


class Galera(MariaDB):
    """Three nodes; the first one begins the cluster, the others copy it. A killed node stays away."""

    kind: ClassVar[str] = "galera"
    variable: ClassVar[str] = "ONCEMQ_TEST_GALERA"
    port_names: ClassVar[Sequence[str]] = (
        "sql",
        *(
            f"{name}-{number}"
            for number in range(1, NODES + 1)
            for name in _PORTS
            if (name, number) != ("sql", 1)
        ),
    )
    in_container: ClassVar[bool] = False

    @classmethod
    def installed(cls) -> bool:
        """Return whether MariaDB and Galera's library are found."""
        return super().installed() and any(Path(provider).exists() for provider in PROVIDERS)

    def address(self, number: int) -> str:
        """Return host and port of a node, counted from 1."""
        return f"{LOOPBACK}:{self._port('sql', number)}"

    def answers(self) -> bool:
        """Return whether each node is part of the whole cluster and has caught up."""
        return all(
            self._said(self._port("sql", number), f"SHOW STATUS LIKE '{name}'").endswith(value)
            for number in range(1, NODES + 1)
            for name, value in (("wsrep_cluster_size", str(NODES)), ("wsrep_local_state_comment", "Synced"))
        )

    def launches(self) -> Sequence[Launch]:
        """Return the three nodes."""
        members = ",".join(f"{LOOPBACK}:{self._port('group', number)}" for number in range(1, NODES + 1))
        program, *common = super().launches()[0].argv
        provider = next(provider for provider in PROVIDERS if Path(provider).exists())
        launches = []
        for number in range(1, NODES + 1):
            group, ist = self._port("group", number), self._port("ist", number)
            options = {
                # Members that do not answer are given up after 2 s instead of 5, so that tests need not wait.
                "evs.suspect_timeout": "PT2S",
                "evs.inactive_timeout": "PT4S",
                "evs.keepalive_period": "PT0.5S",
                "gmcast.listen_addr": f"tcp://{LOOPBACK}:{group}",
                "base_port": str(group),
                "ist.recv_addr": f"{LOOPBACK}:{ist}",
                "gcache.size": "16M",
            }
            argv = [
                program,
                *common,
                # The last one of two counts.
                f"--datadir={self._tables_of(number)}",
                f"--port={self._port('sql', number)}",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
                "--innodb-buffer-pool-size=32M",
                "--wsrep-on=ON",
                f"--wsrep-provider={provider}",
                f"--wsrep-provider-options={';'.join(f'{name}={value}' for name, value in options.items())}",
                f"--wsrep-cluster-name={self.folder.name}",
                f"--wsrep-cluster-address=gcomm://{'' if number == 1 else members}",
                f"--wsrep-node-name=node-{number}",
                f"--wsrep-node-address={LOOPBACK}:{group}",
                "--wsrep-sst-method=rsync",
                f"--wsrep-sst-receive-address={LOOPBACK}:{self._port('sst', number)}",
                *(["--wsrep-new-cluster"] if number == 1 else []),
            ]
            launches.append(Launch(f"node-{number}", argv, listens_on=self._port("group", number)))
        return launches

    @property
    def _tables(self) -> Path:
        return self._tables_of(1)

    def _tables_of(self, number: int) -> Path:
        return self.account.make_folder(self.data / f"node-{number}")

    def _port(self, name: str, number: int) -> int:
        return self.settings.ports["sql" if (name, number) == ("sql", 1) else f"{name}-{number}"]
