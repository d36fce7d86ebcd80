"""Address of a Kafka cluster and its credentials: from the URL and the broker's options, kept out of every text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader

PORT = 9092
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
TIMES = ("connect_timeout", "publish_timeout", "session_timeout", "handover", "retry_retention")
TLS = ("ca", "cert", "key", "verify")
KNOWN = (
    *("hosts", "username", "password", "sasl", "tls", "compression", "protocol", "member", "namespace"),
    *TIMES,
    *TLS,
)
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
CLASSIC, CONSUMER = "classic", "consumer"
LARGEST = 64 * 1024 * 1024
"""Bytes of a message that this client sends or takes; brokers and topics have limits of their own, below it."""

INSTEAD = {
    "declare": "existing topics are used as they are; write create: false at the topic to have missing ones refused",
    "max_priority": "Kafka has no priorities: give urgent messages a topic and a consumer of their own",
    "acks": "messages are always confirmed by all replicas in sync",
    "auto_offset_reset": "write start: first, last or a time at the topic",
    "enable_auto_commit": "offsets are committed by the framework, after the transaction",
    "group_id": "write group: at the consumer",
    "bootstrap_servers": "write the hosts into the URL: kafka://one:9092,two:9092",
}
"""What to write instead of other clients' options."""


@dataclass(frozen=True, slots=True)
class Address:
    """Everything needed to connect.

    Args:
        hosts: `host:port` each, of which one must answer.
        username: shown in errors; empty = none.
        password: never shown.
        sasl: the mechanism of the login.
        tls: librdkafka's settings for TLS; None for plain text.
        compression: of what is published.
        protocol: of the group: `classic`, or `consumer` (KIP-848).
        member: of a static membership; empty = none.
        namespace: put in front of every topic and group; empty = none.
        connect_timeout: until the first answer.
        publish_timeout: how long a retry, dead letter or published message may wait for its confirmation.
        session_timeout: after which a silent member is dead to the group.
        handover: how long a revoked partition waits for what runs.
        retry_retention: how long a retry is kept from its publication; a longer delay is refused.
    """

    hosts: tuple[str, ...]
    username: str
    password: str = field(repr=False)
    sasl: str
    tls: Mapping[str, Any] | None = field(repr=False)
    compression: str
    protocol: str
    member: str
    namespace: str
    connect_timeout: timedelta
    publish_timeout: timedelta
    session_timeout: timedelta
    handover: timedelta
    retry_retention: timedelta

    @property
    def shown(self) -> str:
        """The hosts, for errors."""
        return ",".join(self.hosts)

    @property
    def place(self) -> str:
        """Where the topics are; the same in whichever order hosts are written."""
        return ",".join(sorted({host.replace("localhost:", "127.0.0.1:") for host in self.hosts}))

    def client(self, name: str) -> dict[str, Any]:
        """Return librdkafka's settings for any client.

        Args:
            name: what the cluster's operators see.
        """
        settings: dict[str, Any] = {
            "bootstrap.servers": self.shown,
            "client.id": name,
            "security.protocol": ("SASL_" if self.username else "") + ("SSL" if self.tls else "PLAINTEXT"),
            "socket.connection.setup.timeout.ms": max(1000, _milliseconds(self.connect_timeout)),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            # Its lines would go to standard error, one for each connection that a broker closes.
            "log_level": 2,
            **(self.tls or {}),
        }
        if self.username:
            settings |= {
                "sasl.mechanism": self.sasl,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        return settings

    def producer(self, name: str) -> dict[str, Any]:
        """Return the settings of the producer: idempotent, confirmed by all replicas in sync, keyed as Java's client does."""
        return self.client(name) | {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            # What has no key is spread over the partitions message by message.
            "sticky.partitioning.linger.ms": 0,
            "compression.type": self.compression,
            "message.max.bytes": LARGEST,
            "message.timeout.ms": _milliseconds(self.publish_timeout),
            "linger.ms": 1,
        }

    def member_of(self, group: str, name: str, consumer: str) -> dict[str, Any]:
        """Return the settings of a member of a group.

        Args:
            group: the group.
            name: what the cluster's operators see.
            consumer: makes the static member's name unique in this process.
        """
        settings = self.client(name) | {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 1024 * 1024,
            "fetch.max.bytes": LARGEST,
            "receive.message.max.bytes": 2 * LARGEST,
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 16 * 1024,
            "statistics.interval.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        if self.member:
            settings["group.instance.id"] = f"{self.member}-{consumer}"
        if self.protocol == CONSUMER:
            # The group's session is then the broker's to decide; a client that sets it is refused.
            return settings | {"group.protocol": "consumer"}
        session = _milliseconds(self.session_timeout)
        return settings | {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session,
            "heartbeat.interval.ms": max(100, min(3000, session // 6)),
        }


def parse_address(url: str, options: Mapping[str, Any]) -> Address:
    """Return the address that URL and options describe; options win.

    Raises:
        ConfigError: one of them cannot work; the text never holds the URL, which may hold a password.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    reader = OptionReader({**_query(parts), **options}, KNOWN, "Kafka broker option", INSTEAD)
    address = Address(
        hosts=_hosts(hosts, reader),
        username=reader.text("username", unquote(user) or None) or "",
        password=reader.text("password", unquote(password) or None) or "",
        sasl=reader.choice("sasl", SASL[0], SASL),
        tls=_tls(reader),
        compression=reader.choice("compression", "lz4", COMPRESSIONS),
        protocol=reader.choice("protocol", CLASSIC, (CLASSIC, CONSUMER)),
        member=reader.text("member") or "",
        namespace=reader.text("namespace") or "",
        connect_timeout=reader.duration("connect_timeout", 10 * SECOND, SECOND / 10, 120 * SECOND),
        publish_timeout=reader.duration("publish_timeout", 10 * SECOND, SECOND / 10, 600 * SECOND),
        session_timeout=reader.duration("session_timeout", 45 * SECOND, SECOND, 1800 * SECOND),
        handover=reader.duration("handover", 10 * SECOND, SECOND / 10, 240 * SECOND),
        retry_retention=reader.duration("retry_retention", 30 * DAY, DAY / 24, 3650 * DAY),
    )
    if bool(address.username) != bool(address.password):
        missing = "password" if address.username else "username"
        reader.complain(missing, f"a user name and its password belong together, {missing!r} is missing")
    if address.tls and ("ssl.certificate.location" in address.tls) != ("ssl.key.location" in address.tls):
        missing = "key" if "ssl.certificate.location" in address.tls else "cert"
        reader.complain(
            missing,
            f"a certificate and its key belong together, {missing!r} is missing",
            "one file may hold both: write it for cert and for key",
        )
    if address.protocol == CONSUMER and "session_timeout" in reader.options:
        reader.complain(
            "session_timeout",
            "the brokers decide the session's time-out of a group with protocol: consumer, and refuse a member that sets it",
            "leave out session_timeout",
        )
    reader.finish()
    return address


def _hosts(hosts: str, reader: OptionReader) -> tuple[str, ...]:
    found: list[str] = []
    for text in (*hosts.split(","), *reader.texts("hosts")):
        if not text.strip() and found:
            continue
        try:
            part = urlsplit(f"//{text.strip()}")
            name = part.hostname or "localhost"
            found.append(f"{f'[{name}]' if ':' in name else name}:{part.port or PORT}")
        except ValueError:
            # What stands where a port is expected may be a part of a password.
            raise ConfigError(
                ["the Kafka URL has an invalid host or port – write kafka://host:9092"]
            ) from None
    return tuple(dict.fromkeys(found))


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in ("tls", "verify"):
        if found.get(name) in ("true", "false"):
            found[name] = found[name] == "true"
    return found


def _tls(reader: OptionReader) -> Mapping[str, Any] | None:
    given = [name for name in TLS if name in reader.options]
    if not reader.flag("tls", default=bool(given)):
        for name in given:
            reader.complain(name, f"option {name!r} is for TLS, but tls is false", "write tls: true")
        return None
    names = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}
    found: dict[str, Any] = {}
    for name, setting in names.items():
        file = reader.text(name)
        if file is None:
            continue
        if not Path(file).is_file():
            reader.complain(name, f"the TLS file {file!r} does not exist")
        found[setting] = file
    if not reader.flag("verify", default=True):
        found["enable.ssl.certificate.verification"] = False
    return found or {"enable.ssl.certificate.verification": True}


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
