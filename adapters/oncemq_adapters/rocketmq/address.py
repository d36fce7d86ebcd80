"""Address of a RocketMQ and its credentials: from the URL and the broker's options, kept out of every text."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rocketmq.names import INSTEAD
from oncemq_adapters.rocketmq_client.cluster import Cluster

NAME_SERVER_PORT = 9876
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
SECOND = timedelta(seconds=1)

TIMES = ("connect_timeout", "publish_timeout", "heartbeat", "handover")
TLS = ("ca", "cert", "key", "verify")
KNOWN = (
    "hosts",
    "username",
    "password",
    "namespace",
    "addresses",
    "mixed_subscriptions",
    "trace",
    "tls",
    *TIMES,
    *TLS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(Cluster):
    """Where a RocketMQ is, and what else an app says of it.

    Args:
        namespace: put in front of every topic and group, as RocketMQ's own clients do; empty = none.
        publish_timeout: how long a retry, dead letter or published message may wait for its confirmation.
        heartbeat: how often the brokers hear that a member lives.
        handover: how long a member waits for the former owner of a queue to finish.
        mixed_subscriptions: members of a group may subscribe to different topics or tags.
        trace: the topic that is told of consumption; empty = none.
    """

    namespace: str
    publish_timeout: timedelta
    heartbeat: timedelta
    handover: timedelta
    mixed_subscriptions: bool = False
    trace: str = ""


def parse_address(url: str, options: Mapping[str, Any]) -> Address:
    """Return the address that URL and options describe; options win.

    Raises:
        ConfigError: one of them cannot work; the text never holds the URL, which may hold a password.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    reader = OptionReader({**_query(parts), **options}, KNOWN, "RocketMQ broker option", INSTEAD)
    address = Address(
        name_servers=read_hosts(hosts, reader, NAME_SERVER_PORT, "rocketmq://host:9876"),
        username=reader.text("username", unquote(user)) or "",
        password=reader.text("password", unquote(password)) or "",
        namespace=reader.text("namespace", "") or "",
        addresses=read_addresses(reader, "brokers are", "10.0.0.7:10911"),
        tls=_tls(reader),
        connect_timeout=reader.duration("connect_timeout", 3 * SECOND, SECOND / 10, 120 * SECOND),
        publish_timeout=reader.duration("publish_timeout", 10 * SECOND, SECOND / 10, 600 * SECOND),
        heartbeat=reader.duration("heartbeat", 10 * SECOND, SECOND, 60 * SECOND),
        handover=reader.duration("handover", 3 * SECOND, SECOND / 2, 30 * SECOND),
        mixed_subscriptions=reader.flag("mixed_subscriptions", default=False),
        trace=_trace(reader),
    )
    check_login(reader, address.username, address.password)
    reader.finish()
    return address


def read_hosts(hosts: str, reader: OptionReader, port: int, form: str) -> tuple[str, ...]:
    """Return `host:port` each, of the URL and of the option `hosts`.

    Args:
        hosts: the URL's, separated by comma or semicolon.
        reader: of the broker's options.
        port: where none is written.
        form: how to write it, for the error.

    Raises:
        ConfigError: one of them is none.
    """
    found: list[str] = []
    for text in (*hosts.replace(";", ",").split(","), *reader.texts("hosts")):
        if not text.strip() and found:
            continue
        try:
            part = urlsplit(f"//{text.strip()}")
            found.append(f"{part.hostname or 'localhost'}:{part.port or port}")
        except ValueError:
            # What stands where a port is expected may be a part of a password.
            raise ConfigError([f"the RocketMQ URL has an invalid host or port – write {form}"]) from None
    return tuple(dict.fromkeys(found))


def read_addresses(reader: OptionReader, who: str, example: str) -> Mapping[str, str]:
    """Return where peers are really reached, by the address that they tell.

    Args:
        reader: of the broker's options.
        who: has addresses, for the error.
        example: an address of a peer, for the error.
    """
    declared = reader.options.get("addresses")
    if declared is None:
        return {}
    pairs = declared.items() if isinstance(declared, Mapping) else ()
    if not pairs or not all(isinstance(text, str) and ":" in text for pair in pairs for text in pair):
        reader.complain(
            "addresses", f"addresses must say where {who} reached", f'write {{"{example}": "host:port"}}'
        )
        return {}
    return dict(pairs)


def check_login(reader: OptionReader, username: str, password: str) -> None:
    """Complain about half of a login."""
    if bool(username) != bool(password):
        missing = "password" if username else "username"
        reader.complain(missing, f"an access key and its secret belong together, {missing!r} is missing")


def _trace(reader: OptionReader) -> str:
    """Return the topic of the message trace; `true` is the one that brokers make by `traceTopicEnable`."""
    declared = reader.options.get("trace", False)
    if isinstance(declared, bool):
        return TRACE_TOPIC if declared else ""
    if isinstance(declared, str) and _TOPIC.fullmatch(declared):
        return declared
    reader.complain(
        "trace", f"trace must be true, false or a topic of RocketMQ, not {declared!r}", "write trace: true"
    )
    return ""


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in ("tls", "verify", "mixed_subscriptions", "trace"):
        if found.get(name) in ("true", "false"):
            found[name] = found[name] == "true"
    return found


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
