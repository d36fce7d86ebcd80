"""Adds to the libraries' Sentinel client: the reason why no sentinel names a server, and TLS in the older library."""

from typing import Any

import redis.sentinel
from redis.connection import SSLConnection
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection

from oncemq.errors import RedisRefused
from oncemq.redis.faults import as_ours


class TlsConnection(SentinelManagedConnection, SSLConnection):
    """A connection with TLS to the server that the sentinels name."""


def to_named_server(tls: dict[str, Any]) -> dict[str, Any]:
    """Return the TLS options for the named server's pool: newer clients have an option `ssl`, the older one does not."""
    if not tls or hasattr(redis.sentinel, "SentinelManagedSSLConnection"):
        return tls
    return {name: value for name, value in tls.items() if name != "ssl"} | {"connection_class": TlsConnection}


class Sentinels(Sentinel):
    """Several sentinels; one that answers is enough."""

    def discover_master(self, service_name: str) -> Any:
        """Return host and port of the service's server.

        Raises:
            MasterNotFoundError: no sentinel names one; its cause is the error of asking, if no sentinel answered.
        """
        ask: Any = super().discover_master  # untyped
        try:
            return ask(service_name)
        except MasterNotFoundError:
            why = self._why_no_answer()
        text = f"no sentinel names a server of {service_name!r}"
        raise MasterNotFoundError(text if why is None else f"{text}: {type(why).__name__}: {why}") from why

    def _why_no_answer(self) -> Exception | None:
        """Return the error if no sentinel answers, preferring a transient one; None if one answers."""
        errors = [error for candidate in self.sentinels if (error := _error_of(candidate)) is not None]
        if len(errors) < len(self.sentinels):
            return None
        passing = [
            candidate
            for candidate in errors
            if not isinstance(as_ours(candidate, "", sent=False), RedisRefused)
        ]
        return next(iter(passing or errors), None)


def _error_of(sentinel: Any) -> Exception | None:
    try:
        sentinel.ping()
    except (RedisError, OSError) as error:
        return error
    return None
