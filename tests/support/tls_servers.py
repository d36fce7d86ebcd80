"""RabbitMQ and PostgreSQL of a test's own that speak TLS with the certificate that the test chooses."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services import amqp
from services.ports import LOOPBACK
from services.postgresql import PostgreSQL
from services.process import Launch
from services.rabbitmq import PASSWORD, USER, RabbitMQ
from support.certificates import Certificate


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


def _installed(server: RabbitMQ | PostgreSQL, files: Certificate) -> tuple[Path, Path]:
    """Put the files where the server's user can read them, and nobody else the key."""
    certificate = server.account.write(server.data / "server.crt", files.certificate.read_text())
    key = server.account.write(server.data / "server.key", files.key.read_text())
    return certificate, key
