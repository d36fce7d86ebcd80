"""Address of RocketMQ's name servers and brokers, with the account to use there."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything needed to connect.

    Args:
        name_servers: `host:port` each, tried in turn.
        username: the access key; empty = none.
        password: the secret key; never shown.
        addresses: where a broker is really reached, by the address it tells, such as behind port forwarding.
        tls: None for plain text.
        connect_timeout: for each try to connect, and for each answer of a name server.
    """

    name_servers: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    addresses: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    connect_timeout: timedelta = timedelta(seconds=3)

    def reached(self, told: str) -> str:
        """Return where a broker is reached that tells this address."""
        return self.addresses.get(told, told)
