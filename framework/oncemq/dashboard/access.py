"""Access to the page: for this machine alone, for users with passwords, or for those whom a proxy has authenticated."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final, Protocol

from starlette.requests import HTTPConnection

from oncemq.errors import ConfigError, OnceMQError
from oncemq.ledger.records.audit import caller

_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_COST: Final = {"n": 2**14, "r": 8, "p": 1}
_MAX_CREDENTIALS: Final = 1024


class Denied(OnceMQError):
    """A request is not answered.

    Attributes:
        status: 401 where a password may help, 403 where nothing does, 400 for a strange request.
        text: what to tell.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Access(Protocol):
    """Decides about each request."""

    def user(self, request: HTTPConnection) -> str:
        """Return the name of the person who asks, for the audit trail.

        Raises:
            Denied: nothing is answered.
        """
        ...


class Loopback:
    """Users of this machine; nothing from other machines, also not by way of a browser here."""

    def user(self, request: HTTPConnection) -> str:
        """See Access."""
        client = request.client.host if request.client is not None else ""
        if not _is_loopback(client):
            raise Denied(
                403, "this page answers its own machine only: start it with --users or --user-header"
            )
        # A page of another site may point a name of its own at 127.0.0.1 and read what comes back.
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() not in _LOCAL_NAMES:
            raise Denied(400, "unknown host name: ask for 127.0.0.1 or localhost")
        return caller()


class Users:
    """Users of a file, by HTTP Basic authentication; put TLS in front of it.

    Each line is `name:scrypt$salt$hash`, as `oncemq dashboard --new-user NAME` prints it. The file is read at the start.

    Args:
        file: the file.

    Raises:
        ConfigError: it cannot be read, or a line is wrong.
    """

    def __init__(self, file: Path) -> None:
        self._hashes: dict[str, tuple[bytes, bytes]] = {}
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"the users' file {file} cannot be read: {error}"]) from error
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, text = line.strip().partition(":")
            kind, *parts = text.split("$")
            try:
                salt, digest = (bytes.fromhex(part) for part in parts)
            except ValueError:
                kind = ""
            if kind != "scrypt" or not name:
                raise ConfigError(
                    [
                        f"{file}:{number}: no line of a user – write what `oncemq dashboard --new-user NAME` prints"
                    ]
                )
            self._hashes[name] = (salt, digest)
        if not self._hashes:
            raise ConfigError([f"{file} names no user – add what `oncemq dashboard --new-user NAME` prints"])
        # What was right once is not hashed for each picture and style sheet.
        self._right: dict[str, bytes] = {}
        self._secret = secrets.token_bytes(32)

    def user(self, request: HTTPConnection) -> str:
        """See Access."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic" or len(text) > _MAX_CREDENTIALS:
            raise Denied(401, "who are you?")
        try:
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Denied(401, "who are you?") from None
        if not self._knows(name, password):
            raise Denied(401, "name or password is wrong")
        return name

    def _knows(self, name: str, password: str) -> bool:
        mark = hmac.digest(self._secret, f"{name}:{password}".encode(), "sha256")
        if hmac.compare_digest(self._right.get(name, b""), mark):
            return True
        # An unknown name takes as long as a wrong password.
        salt, digest = self._hashes.get(name, (b"0" * 16, b""))
        if not hmac.compare_digest(_hashed(password, salt), digest):
            return False
        self._right[name] = mark
        return True


class ProxyHeader:
    """A proxy that has authenticated the user, and says who in a header.

    Args:
        header: its name, such as `X-Remote-User`; the proxy must remove one that a client sends.
        proxies: networks of the proxies; requests of others are denied.

    Raises:
        ConfigError: a network is none.
    """

    def __init__(self, header: str, proxies: Sequence[str]) -> None:
        self._header = header
        try:
            self._proxies = [ip_network(each) for each in proxies]
        except ValueError as error:
            raise ConfigError([f"{error} – write a network like 10.0.0.0/8"]) from error

    def user(self, request: HTTPConnection) -> str:
        """See Access."""
        client = request.client.host if request.client is not None else ""
        try:
            trusted = any(ip_address(client) in proxy for proxy in self._proxies)
        except ValueError:
            trusted = False
        if not trusted:
            raise Denied(403, "this page answers its proxy only")
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not names[0].strip():
            raise Denied(401, f"the proxy has not said who asks, in the header {self._header}")
        return names[0].strip()[:200]


def user_line(name: str, password: str) -> str:
    """Return a user's line for the file of `Users`."""
    salt = secrets.token_bytes(16)
    return f"{name}:scrypt${salt.hex()}${_hashed(password, salt).hex()}"


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on is reached from this machine only."""
    return host == "localhost" or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, **_COST)
