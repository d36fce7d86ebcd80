"""Sentinels: what the client libraries leave out about them, which is why none names a server, and TLS in the older one."""

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
    """Return what the named server's pool is told about TLS: newer clients know the word `ssl`, the older one does not."""
    if not tls or hasattr(redis.sentinel, "SentinelManagedSSLConnection"):
        return tls
    return {name: value for name, value in tls.items() if name != "ssl"} | {"connection_class": TlsConnection}


class Sentinels(Sentinel):
    """Several sentinels, of whom one that answers is enough."""

    def discover_master(self, service_name: str) -> Any:
        """Return host and port of the service's server.

        Raises:
            MasterNotFoundError: nobody knows; its cause is what came of asking, where nobody answered.
        """
        ask: Any = super().discover_master  # without types of its own
        try:
            return ask(service_name)
        except MasterNotFoundError:
            why = self._why_nobody_answers()
        text = f"no sentinel names a server of {service_name!r}"
        raise MasterNotFoundError(text if why is None else f"{text}: {type(why).__name__}: {why}") from why

    def _why_nobody_answers(self) -> Exception | None:
        """Return what will pass, if that keeps one of them from answering; None if one answers."""
        errors = [error for one in self.sentinels if (error := _error_of(one)) is not None]
        if len(errors) < len(self.sentinels):
            return None
        passing = [one for one in errors if not isinstance(as_ours(one, "", sent=False), RedisRefused)]
        return next(iter(passing or errors), None)


def _error_of(sentinel: Any) -> Exception | None:
    try:
        sentinel.ping()
    except (RedisError, OSError) as error:
        return error
    return None
