"""Sentinels that say why they name no server; the client library's own leave that out."""

from typing import Any

from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError, Sentinel

from oncemq.errors import RedisRefused
from oncemq.redis.faults import as_ours


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
        raise MasterNotFoundError(f"no sentinel names a server of {service_name!r}") from why

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
