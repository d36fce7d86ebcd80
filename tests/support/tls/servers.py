"""RabbitMQ, RocketMQ's proxy, PostgreSQL, MariaDB and Redis, alone and behind a sentinel, of a test's own that speak TLS with the certificate that the test chooses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services.ports import LOOPBACK
from services.process import Launch
from services.protocols import amqp
from services.servers.mariadb import USER as MARIADB_USER
from services.servers.mariadb import MariaDB
from services.servers.postgresql import PostgreSQL
from services.servers.rabbitmq import PASSWORD, USER, RabbitMQ
from services.servers.redis import Redis, ask
from services.servers.rocketmq import RocketMQ
from support.tls.certificates import Certificate


class TlsRabbitMQ(RabbitMQ):
    """One node that listens with TLS too; set `certificate` before it starts."""

    port_names: ClassVar[Sequence[str]] = (*RabbitMQ.port_names, "tls")
    certificate: Certificate

    @property
    def tls_port(self) -> int:
        """The port that speaks TLS."""
        return self.settings.ports["tls"]

    def url_for(self, host: str) -> str:
        """The URL of the TLS listener."""
        return f"amqps://{USER}:{PASSWORD}@{host}:{self.tls_port}/"

    def answers(self) -> bool:
        """Return whether the plain listener answers; both start together."""
        return amqp.answers(self.port, user=USER, password=PASSWORD)

    def prepare(self) -> None:
        """Write the configuration with the TLS listener."""
        super().prepare()
        certificate, key = _installed(self, self.certificate)
        configuration = self.data / "rabbitmq.conf"
        lines = [
            configuration.read_text(),
            f"listeners.ssl.1 = {LOOPBACK}:{self.tls_port}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_none",
            "ssl_options.fail_if_no_peer_cert = false",
        ]
        self.account.write(configuration, "\n".join(lines) + "\n")


class TlsRocketMQ(RocketMQ):
    """Name server, and a broker whose proxy speaks TLS on its gRPC port to those who begin so; set `certificate` first."""

    certificate: Certificate

    def url_for(self, host: str) -> str:
        """The URL of the proxy by this name of the machine."""
        login = f"{self.user}:{self.settings.password}"
        return f"rocketmq+grpc://{login}@{host}:{self.settings.ports['grpc']}"

    def _proxy(self) -> Mapping[str, object]:
        certificate, key = _installed(self, self.certificate)
        own = {"tlsTestModeEnable": False, "tlsCertPath": str(certificate), "tlsKeyPath": str(key)}
        return {**super()._proxy(), **own}


class TlsPostgreSQL(PostgreSQL):
    """One cluster that speaks TLS; set `certificate` before it starts."""

    certificate: Certificate

    def url_for(self, host: str) -> str:
        """The URL by this name of the machine."""
        return self.url.replace(LOOPBACK, host)

    def launches(self) -> Sequence[Launch]:
        """Return the postmaster with TLS switched on."""
        certificate, key = _installed(self, self.certificate)
        (launch,) = super().launches()
        tls = ["--ssl=on", f"--ssl_cert_file={certificate}", f"--ssl_key_file={key}"]
        return [Launch(launch.name, [*launch.argv, *tls], stop_signal=launch.stop_signal)]


class TlsMariaDB(MariaDB):
    """One server that speaks TLS to those who ask for it; set `certificate` before it starts."""

    certificate: Certificate

    def url_for(self, host: str) -> str:
        """The URL by this name of the machine, which says nothing of TLS."""
        return f"mysql+pymysql://{MARIADB_USER}:{self.settings.password}@{host}:{self.port}/mysql"

    def launches(self) -> Sequence[Launch]:
        """Return the server with TLS switched on."""
        certificate, key = _installed(self, self.certificate)
        (launch,) = super().launches()
        return [Launch(launch.name, [*launch.argv, f"--ssl-cert={certificate}", f"--ssl-key={key}"])]


class TlsRedis(Redis):
    """One server that listens with TLS too; set `certificate` before it starts."""

    port_names: ClassVar[Sequence[str]] = (*Redis.port_names, "tls")
    certificate: Certificate

    def url_for(self, host: str) -> str:
        """The URL of the TLS listener."""
        return f"rediss://:{self.settings.password}@{host}:{self.settings.ports['tls']}/0"

    def prepare(self) -> None:
        """Write the configuration with the TLS listener; it asks no one for a certificate."""
        super().prepare()
        certificate, key = _installed(self, self.certificate)
        configuration = self.data / "redis.conf"
        lines = [
            configuration.read_text(),
            f"tls-port {self.settings.ports['tls']}",
            f"tls-cert-file {certificate}",
            f"tls-key-file {key}",
            f"tls-ca-cert-file {certificate}",
            "tls-auth-clients no",
        ]
        self.account.write(configuration, "\n".join(lines) + "\n")


class TlsRedisCluster(TlsRedis):
    """A cluster of one node, which names itself by nothing but the host that it was asked by."""

    kind: ClassVar[str] = "redis-of-one-node"
    port_names: ClassVar[Sequence[str]] = (*TlsRedis.port_names, "bus")

    def url_for(self, host: str) -> str:
        """The URL of the TLS listener."""
        return super().url_for(host).replace("rediss://", "rediss+cluster://").removesuffix("/0")

    def prepare(self) -> None:
        """Write the configuration of a node."""
        super().prepare()
        configuration = self.data / "redis.conf"
        node = ["cluster-enabled yes", "tls-cluster yes", f"cluster-port {self.settings.ports['bus']}"]
        self.account.write(configuration, configuration.read_text() + "\n".join(node) + "\n")

    def answers(self) -> bool:
        """Return whether it holds every slot."""
        if not super().answers():
            return False
        ask(self.port, "CLUSTER", "ADDSLOTSRANGE", "0", "16383", password=self.settings.password)
        return "cluster_state:ok" in ask(self.port, "CLUSTER", "INFO", password=self.settings.password)


class TlsSentinel(TlsRedis):
    """A server and the sentinel that names it, who both ask for certificates; set all three before it starts."""

    kind: ClassVar[str] = "redis-behind-sentinel"
    port_names: ClassVar[Sequence[str]] = (*TlsRedis.port_names, "sentinel", "plain-sentinel")
    service: ClassVar[str] = "orders"
    sentinels_certificate: Certificate
    authority: Path

    def url_for(self, host: str) -> str:
        """The URL of the sentinel's TLS listener."""
        return f"rediss+sentinel://:{self.settings.password}@{host}:{self.settings.ports['sentinel']}/{self.service}"

    def prepare(self) -> None:
        """Write both configurations; a sentinel writes into its own what it finds out."""
        super().prepare()
        authority = self.account.write(self.data / "authority.pem", self.authority.read_text())
        asking = [f"tls-ca-cert-file {authority}", "tls-auth-clients yes"]
        configuration = self.data / "redis.conf"
        self.account.write(configuration, "\n".join([configuration.read_text(), *asking]) + "\n")
        certificate, key = _installed(self, self.sentinels_certificate, "sentinel")
        watched, ports = (
            f"sentinel monitor {self.service} {LOOPBACK} {self.settings.ports['tls']} 1",
            self.settings.ports,
        )
        lines = [
            f"bind {LOOPBACK}",
            f"port {ports['plain-sentinel']}",
            f"tls-port {ports['sentinel']}",
            f"tls-cert-file {certificate}",
            f"tls-key-file {key}",
            *asking,
            "tls-replication yes",
            f"dir {self.data}",
            watched,
            f"sentinel auth-pass {self.service} {self.settings.password}",
        ]
        self.account.write(self.data / "sentinel.conf", "\n".join(lines) + "\n")

    def launches(self) -> Sequence[Launch]:
        """Return the server and its sentinel."""
        (server,) = super().launches()
        sentinel = [server.argv[0], str(self.data / "sentinel.conf"), "--sentinel"]
        return [server, Launch("sentinel", sentinel, listens_on=self.settings.ports["plain-sentinel"])]


def _installed(
    server: RabbitMQ | RocketMQ | PostgreSQL | Redis, files: Certificate, name: str = "server"
) -> tuple[Path, Path]:
    """Put the files where the server's user can read them, and no one else the key."""
    certificate = server.account.write(server.data / f"{name}.crt", files.certificate.read_text())
    key = server.account.write(server.data / f"{name}.key", files.key.read_text())
    return certificate, key
