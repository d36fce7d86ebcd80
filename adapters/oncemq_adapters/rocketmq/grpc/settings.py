"""Settings of the proxy: where it is, how long deliveries are leased, and who administrates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rocketmq.address import (
    Address,
    check_login,
    parse_address,
    read_addresses,
    read_hosts,
)

PROXY_PORT = 8081
SECOND = timedelta(seconds=1)
LONGEST_LEASE = timedelta(hours=12)

KNOWN = (
    *("hosts", "username", "password", "namespace", "addresses", "name_servers", "tls", "ca"),
    *("connect_timeout", "publish_timeout", "lease", "poll"),
)

_INSTEAD = {
    "trace": "a proxy's clients send no message trace: consume through rocketmq://, where trace: true is"
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything needed to use a proxy.

    Args:
        endpoints: `host:port` each.
        username: the access key; empty = none.
        password: the secret key; never shown.
        namespace: put in front of every topic and group; empty = none.
        addresses: where an endpoint is really reached, by the address that routes tell.
        tls: connections are encrypted, and the proxy's certificate verified.
        authorities: whom to trust, PEM; None = the authorities that gRPC brings.
        connect_timeout: for each question to the proxy.
        publish_timeout: how long a retry, dead letter or published message may wait for its confirmation.
        lease: how long a delivery is ours unless it is extended; whole seconds.
        poll: how long the proxy may hold a question for messages when there are none.
        administration: the name servers, for what gRPC has no way to do; None = not given.
    """

    endpoints: tuple[str, ...]
    username: str
    password: str = field(repr=False)
    namespace: str
    addresses: Mapping[str, str]
    tls: bool
    authorities: bytes | None = field(repr=False)
    connect_timeout: timedelta
    publish_timeout: timedelta
    lease: timedelta
    poll: timedelta
    administration: Address | None = field(repr=False)

    @property
    def shown(self) -> str:
        """The endpoints, as errors name them."""
        return ", ".join(self.endpoints)


def parse_settings(url: str, options: Mapping[str, Any]) -> Settings:
    """Return the settings that URL and options describe; options win.

    Raises:
        ConfigError: one of them cannot work; the text never holds the URL, which may hold a password.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    query: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    if query.get("tls") in ("true", "false"):
        query["tls"] = query["tls"] == "true"
    reader = OptionReader({**query, **options}, KNOWN, "RocketMQ gRPC broker option", _INSTEAD)
    authority = reader.text("ca")
    settings = Settings(
        endpoints=read_hosts(hosts, reader, PROXY_PORT, "rocketmq+grpc://host:8081"),
        username=reader.text("username", unquote(user)) or "",
        password=reader.text("password", unquote(password)) or "",
        namespace=reader.text("namespace", "") or "",
        addresses=read_addresses(reader, "proxies and brokers are", "10.0.0.7:8081"),
        tls=reader.flag("tls", default=authority is not None),
        authorities=_authorities(reader, authority),
        connect_timeout=reader.duration("connect_timeout", 3 * SECOND, SECOND, 120 * SECOND),
        publish_timeout=reader.duration("publish_timeout", 10 * SECOND, SECOND, 600 * SECOND),
        lease=_whole(reader.duration("lease", 60 * SECOND, SECOND / 10, LONGEST_LEASE)),
        poll=reader.duration("poll", 5 * SECOND, SECOND / 10, 60 * SECOND),
        administration=_administration(reader, user, password),
    )
    check_login(reader, settings.username, settings.password)
    if authority is not None and not settings.tls:
        reader.complain("ca", "option 'ca' is for TLS, but tls is false", "write tls: true")
    reader.finish()
    return settings


def _whole(duration: timedelta) -> timedelta:
    """Return the duration in whole seconds, never shorter: the package knows no parts of a second."""
    return SECOND * math.ceil(duration.total_seconds())


def _authorities(reader: OptionReader, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reader.complain("ca", f"the certificates of option 'ca' cannot be read: {error}")
        return None


def _administration(reader: OptionReader, user: str, password: str) -> Address | None:
    servers = reader.texts("name_servers")
    if not servers:
        return None
    passed = {
        name: reader.options[name]
        for name in ("username", "password", "namespace", "addresses", "connect_timeout", "publish_timeout")
        if name in reader.options
    }
    login = f"{user}:{password}@" if user else ""
    try:
        return parse_address(f"rocketmq://{login}{','.join(servers)}", passed)
    except ConfigError as error:
        for problem in error.problems:
            reader.complain("name_servers", str(problem))
        return None
