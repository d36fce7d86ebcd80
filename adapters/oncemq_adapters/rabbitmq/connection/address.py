"""Address of the broker and its credentials: from the URL and the broker's options, kept out of every text."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pika

from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rabbitmq.connection.host_order import HostOrder

PLAIN_PORT = 5672
TLS_PORT = 5671
SECOND = timedelta(seconds=1)

TIMES = ("heartbeat", "connect_timeout", "publish_timeout")
TLS = ("ca", "cert", "key", "verify")
KNOWN = ("hosts", "username", "password", "queue_type", "declare", "management", *TIMES, *TLS)
QUEUE_TYPES = ("quorum", "classic")
DECLARE, DECLARE_MISSING, DECLARE_NOTHING = "true", "missing", "false"
"""Declare and compare; declare missing objects; only check."""


@dataclass(frozen=True, slots=True)
class Host:
    """One address of the broker."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """Everything needed to connect.

    Args:
        hosts: tried in turn, those first that did not fail a moment ago.
        virtual_host: decoded.
        username: shown in errors.
        password: never shown.
        tls: None for plain text.
        heartbeat: a silent broker is noticed after 2 x (heartbeat + 5 s) at the latest.
        connect_timeout: for each try to connect.
        publish_timeout: how long a retry, dead letter or published message may wait for its confirmation.
        queue_type: of the queues that the adapter declares, unless the topic says otherwise.
        declare: what is made on the broker, unless the topic says otherwise.
        management: URL of the management API, without a password; None = not used.
        order: which host is next.
    """

    hosts: tuple[Host, ...]
    virtual_host: str
    username: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    heartbeat: timedelta
    connect_timeout: timedelta
    publish_timeout: timedelta
    queue_type: str
    declare: str
    management: str | None
    order: HostOrder[Host] = field(repr=False, compare=False)

    @property
    def place(self) -> str:
        """Where the queues are, credentials left out; the same in whichever order hosts are written."""
        loopback = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
        hosts = sorted({str(Host(loopback.get(host.name, host.name), host.port)) for host in self.hosts})
        return f"{','.join(hosts)}/{self.virtual_host.removeprefix('/')}"

    def parameters(self, host: Host, name: str, patience: float | None = None) -> Any:
        """Return pika's parameters for one host.

        Args:
            host: where.
            name: what the broker's operators see.
            patience: seconds for its answer, if less than is configured.
        """
        seconds = self.connect_timeout.total_seconds()
        if patience is not None:
            seconds = min(seconds, patience)
        heartbeat = round(self.heartbeat.total_seconds())
        return pika.ConnectionParameters(
            host=host.name,
            port=host.port,
            virtual_host=self.virtual_host,
            credentials=pika.PlainCredentials(self.username, self.password),
            ssl_options=pika.SSLOptions(self.tls, host.name) if self.tls else None,
            heartbeat=heartbeat,
            socket_timeout=seconds,
            stack_timeout=seconds * (1.5 if patience is None else 1),
            connection_attempts=1,
            client_properties={"connection_name": name, "product": "OnceMQ"},
            # A vanished machine answers nothing at all: the kernel gives up as early as the heartbeat would.
            tcp_options={"TCP_USER_TIMEOUT": 2 * heartbeat * 1000},
        )


def parse_address(url: str, options: Mapping[str, Any]) -> Address:
    """Return the address that URL and options describe; options win.

    Raises:
        ConfigError: one of them cannot work; the text never holds the URL, which may hold a password.
    """
    parts = _split(url)
    reader = OptionReader({**_query(parts), **options}, KNOWN, "RabbitMQ broker option")
    secure = parts.scheme == "amqps"
    if not secure:
        _refuse_tls_options(reader, options)
    hosts = _hosts(parts, reader)
    address = Address(
        hosts=hosts,
        virtual_host=_virtual_host(parts),
        username=reader.text("username", unquote(parts.username or "guest")) or "",
        password=reader.text("password", unquote(parts.password or "guest")) or "",
        tls=_tls(reader) if secure else None,
        heartbeat=reader.duration("heartbeat", 4 * SECOND, SECOND, 600 * SECOND),
        connect_timeout=reader.duration("connect_timeout", 5 * SECOND, SECOND / 10, 120 * SECOND),
        publish_timeout=reader.duration("publish_timeout", 10 * SECOND, SECOND / 10, 600 * SECOND),
        queue_type=reader.choice("queue_type", "quorum", QUEUE_TYPES),
        declare=read_declare(reader, DECLARE),
        management=_management(reader),
        order=HostOrder(hosts),
    )
    reader.finish()
    return address


def read_declare(reader: OptionReader, default: str) -> str:
    """Return what the option `declare` says: true, missing or false, as YAML or as text."""
    found = reader.options.get("declare")
    if found is None:
        return default
    text = str(found).lower() if isinstance(found, bool) else found
    if text not in (DECLARE, DECLARE_MISSING, DECLARE_NOTHING):
        reader.complain("declare", f"declare cannot be {str(found)[:80]!r}", "write true, missing or false")
        return default
    return str(text)


def _management(reader: OptionReader) -> str | None:
    """Return the URL of the management API, which is called with the broker's user name and password."""
    url = reader.text("management")
    if url is None:
        return None
    if not url.startswith(("http://", "https://")) or "@" in url:
        reader.complain(
            "management",
            "management is not the URL of an HTTP API",
            "write http://host:15672, without user name and password",
        )
        return None
    return url


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a port that is no number is refused when it is read
    except ValueError:
        # Not as the cause: its text repeats what stands where a port is expected, perhaps a password.
        raise ConfigError(
            ["the RabbitMQ URL has an invalid port or host – write amqp://host:5672/"]
        ) from None
    if parts.scheme not in ("amqp", "amqps"):
        raise ConfigError([f"a RabbitMQ URL starts with amqp:// or amqps://, not {parts.scheme + '://'!r}"])
    return parts


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in TIMES:
        # AMQP URLs carry bare seconds; our own options never do.
        if str(found.get(name, "")).isdigit():
            found[name] += "s"
    if found.get("verify") in ("true", "false"):
        found["verify"] = found["verify"] == "true"
    if "hosts" in found:
        found["hosts"] = found["hosts"].split(",")
    return found


def _virtual_host(parts: SplitResult) -> str:
    return unquote(parts.path[1:]) or "/"


def _hosts(parts: SplitResult, reader: OptionReader) -> tuple[Host, ...]:
    default = TLS_PORT if parts.scheme == "amqps" else PLAIN_PORT
    first = Host(parts.hostname or "localhost", parts.port or default)
    others = []
    for text in reader.texts("hosts"):
        try:
            other = urlsplit(f"//{text}")
            others.append(Host(other.hostname or "localhost", other.port or default))
        except ValueError:
            reader.complain("hosts", f"{text.rpartition('@')[2]!r} is not host or host:port")
    return tuple(dict.fromkeys([first, *others]))


def _tls(reader: OptionReader) -> ssl.SSLContext | None:
    authority, certificate, key = reader.text("ca"), reader.text("cert"), reader.text("key")
    verify = reader.flag("verify", default=True)
    if key and not certificate:
        reader.complain("key", "a key needs its certificate", "add cert:")
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reader.complain("ca" if not certificate else "cert", f"the TLS files cannot be used: {error}")
        return None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refuse_tls_options(reader: OptionReader, options: Mapping[str, Any]) -> None:
    for name in TLS:
        if name in options:
            reader.complain(name, f"option {name!r} is for TLS, but the URL says amqp://", "write amqps://")
