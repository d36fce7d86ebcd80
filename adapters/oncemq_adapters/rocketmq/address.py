"""Where a RocketMQ is and how to log in: from the URL and the broker's options, credentials kept out of every text."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader

NAME_SERVER_PORT = 9876
SECOND = timedelta(seconds=1)

TIMES = ("connect_timeout", "publish_timeout", "heartbeat", "handover")
TLS = ("ca", "cert", "key", "verify")
KNOWN = ("hosts", "username", "password", "namespace", "addresses", "tls", *TIMES, *TLS)


@dataclass(frozen=True, slots=True)
class Address:
    """Everything needed to connect.

    Args:
        name_servers: `host:port` each, tried in turn.
        username: the access key; empty = none.
        password: the secret key; never shown.
        namespace: put in front of every topic and group, as RocketMQ's own clients do; empty = none.
        addresses: where a broker is really reached, by the address it tells, such as behind port forwarding.
        tls: None for plain text.
        connect_timeout: for each try to connect, and for each answer of a name server.
        publish_timeout: how long a retry, dead letter or published message may wait for its confirmation.
        heartbeat: how often the brokers hear that a member lives.
        handover: how long a member waits for the former owner of a queue to finish.
    """

    name_servers: tuple[str, ...]
    username: str
    password: str = field(repr=False)
    namespace: str
    addresses: Mapping[str, str]
    tls: ssl.SSLContext | None = field(repr=False)
    connect_timeout: timedelta
    publish_timeout: timedelta
    heartbeat: timedelta
    handover: timedelta

    def reached(self, told: str) -> str:
        """Return where a broker is reached that tells this address."""
        return self.addresses.get(told, told)


def parse_address(url: str, options: Mapping[str, Any]) -> Address:
    """Return the address that URL and options describe; options win.

    Raises:
        ConfigError: one of them cannot work; the text never holds the URL, which may hold a password.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    reader = OptionReader({**_query(parts), **options}, KNOWN, "RocketMQ broker option")
    address = Address(
        name_servers=_name_servers(hosts, reader),
        username=reader.text("username", unquote(user)) or "",
        password=reader.text("password", unquote(password)) or "",
        namespace=reader.text("namespace", "") or "",
        addresses=_addresses(reader, options.get("addresses")),
        tls=_tls(reader),
        connect_timeout=reader.duration("connect_timeout", 3 * SECOND, SECOND / 10, 120 * SECOND),
        publish_timeout=reader.duration("publish_timeout", 10 * SECOND, SECOND / 10, 600 * SECOND),
        heartbeat=reader.duration("heartbeat", 10 * SECOND, SECOND, 60 * SECOND),
        handover=reader.duration("handover", 3 * SECOND, SECOND / 2, 30 * SECOND),
    )
    if bool(address.username) != bool(address.password):
        missing = "password" if address.username else "username"
        reader.complain(missing, f"an access key and its secret belong together, {missing!r} is missing")
    reader.finish()
    return address


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in ("tls", "verify"):
        if found.get(name) in ("true", "false"):
            found[name] = found[name] == "true"
    return found


def _name_servers(hosts: str, reader: OptionReader) -> tuple[str, ...]:
    found: list[str] = []
    for text in (*hosts.replace(";", ",").split(","), *reader.texts("hosts")):
        if not text.strip() and found:
            continue
        try:
            part = urlsplit(f"//{text.strip()}")
            found.append(f"{part.hostname or 'localhost'}:{part.port or NAME_SERVER_PORT}")
        except ValueError:
            # What stands where a port is expected may be a part of a password.
            raise ConfigError(
                ["the RocketMQ URL has a host or port that is none – write rocketmq://host:9876"]
            ) from None
    return tuple(dict.fromkeys(found))


def _addresses(reader: OptionReader, declared: Any) -> Mapping[str, str]:
    if declared is None:
        return {}
    pairs = declared.items() if isinstance(declared, Mapping) else ()
    if not pairs or not all(isinstance(text, str) and ":" in text for pair in pairs for text in pair):
        reader.complain(
            "addresses",
            "addresses must say where brokers are reached",
            'write {"10.0.0.7:10911": "host:port"}',
        )
        return {}
    return dict(pairs)


def _tls(reader: OptionReader) -> ssl.SSLContext | None:
    given = [name for name in TLS if name in reader.options]
    if not reader.flag("tls", default=bool(given)):
        for name in given:
            reader.complain(name, f"option {name!r} is for TLS, but tls is false", "write tls: true")
        return None
    authority, certificate, key = reader.text("ca"), reader.text("cert"), reader.text("key")
    verify = reader.flag("verify", default=True)
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reader.complain("cert" if certificate else "ca", f"the TLS files cannot be used: {error}")
        return None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
