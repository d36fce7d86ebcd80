"""A Kafka of a test's own that speaks TLS, with a listener for each certificate that it may show."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from services.ports import LOOPBACK
from services.servers.kafka import Kafka
from support.tls.cases import Material

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_MUTUAL = "mutual"
_SHOWN = {
    "secure": "right",
    "expired": "expired",
    "elsewhere": "other",
    "self": "self-signed",
    _MUTUAL: "right",
}
"""The certificate of each listener."""


class TlsKafka(Kafka):
    """One node; set `material` before it starts.

    Its listeners `secure` and `mutual` show a right certificate, the second to those who show one; `secure` asks for a login by PLAIN
    or SCRAM-SHA-512. The others show wrong certificates.
    """

    port_names: ClassVar[Sequence[str]] = (*Kafka.port_names, *_SHOWN)
    material: Material
    guest: ClassVar[str] = "guest"
    """A user with the same password who may do nothing unless told so."""
    metadata_bytes: ClassVar[int] = 64
    """Of an offset; other brokers take 4,096."""

    def host(self, listener: str, name: str = "localhost") -> str:
        """Return where a listener is."""
        return f"{name}:{self.settings.ports[listener]}"

    @property
    def format_options(self) -> Sequence[str]:
        """Return the account for SCRAM: it must be there before the first start."""
        login = f"name={self.user},password={self.settings.password}"
        return ["--add-scram", f"SCRAM-SHA-512=[{login}]"]

    def _properties(self, suffix: str = "") -> Mapping[str, object]:
        found: dict[str, Any] = dict(super()._properties(suffix))
        for listener in _SHOWN:
            name = listener.upper()
            protocol = "SASL_SSL" if listener == "secure" else "SSL"
            port = self.settings.ports[listener]
            found["listener.security.protocol.map"] += f",{name}:{protocol}"
            found["listeners"] += f",{name}://{LOOPBACK}:{port}"
            found["advertised.listeners"] += f",{name}://{self.host(listener)}"
            found |= {
                f"listener.name.{listener}.{setting}": value
                for setting, value in self._tls_of(listener).items()
            }
        plain = found["listener.name.client.plain.sasl.jaas.config"]
        return found | {
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": plain.replace(
                ";", f' user_{self.guest}="{self.settings.password}";'
            ),
            "listener.name.secure.scram-sha-512.sasl.jaas.config": _SCRAM,
            "offset.metadata.max.bytes": self.metadata_bytes,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The node itself asks without a name.
            "super.users": f"User:{self.user};User:ANONYMOUS",
        }

    def _tls_of(self, listener: str) -> Mapping[str, object]:
        files = self.material.served[_SHOWN[listener]]
        both = self.account.write(
            self.data / f"{listener}.pem", files.key.read_text() + files.certificate.read_text()
        )
        trusted: Path = self.material.trusted["ours"]
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trusted,
            "ssl.client.auth": "required" if listener == _MUTUAL else "none",
        }
