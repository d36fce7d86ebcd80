"""Looks up implementations by name through entry points; an unknown name is an error with a suggestion."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from oncemq.errors import MissingExtra, UnknownName

T = TypeVar("T")

ADAPTERS = "oncemq.adapters"
STRATEGIES = "oncemq.strategies"
COMMANDS = "oncemq.commands"


def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group, such as `oncemq.adapters`, by name."""
    return _of_group(group, tuple(sys.path))


@cache
def _of_group(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    return MappingProxyType({point.name: point for point in _everything(path).select(group=group)})


@cache
def _everything(path: tuple[str, ...]) -> Any:  # its type depends on the version of Python
    """Return all entry points, which are looked up once for each `sys.path`: that reads a file of every installed package."""
    del path
    return entry_points()


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the end of an error message about an unknown `name`: a suggestion and the known names."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (known: {', '.join(sorted(known)) or 'none'})"


class Registry(Generic[T]):
    """The implementations of one kind, by name; entry points are loaded on demand.

    Args:
        group: of the entry points.
        kind: the noun used in errors.
        extra: additional implementations, which take precedence.
        foreign: names used by other libraries, mapped to ours.
    """

    def __init__(
        self,
        group: str,
        kind: str,
        extra: Mapping[str, type[T]] | None = None,
        foreign: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._foreign = dict(foreign or {})
        self._extra = dict(extra or {})
        self._points = installed(group)

    def names(self) -> list[str]:
        """Return every name that `get` accepts, sorted."""
        return sorted({*self._points, *self._extra})

    def get(self, name: str) -> type[T]:
        """Return the implementation registered under `name`.

        Raises:
            UnknownName: nothing is registered under it.
            MissingExtra: it exists, but a package that it needs is not installed.
        """
        if name in self._extra:
            return self._extra[name]
        if name not in self._points:
            if name in self._foreign:
                raise UnknownName(f"unknown {self._kind} {name!r}; here it is called {self._foreign[name]!r}")
            raise UnknownName(f"unknown {self._kind} {name!r}{did_you_mean(name, self.names())}")
        return self._load(self._points[name])

    def _load(self, point: EntryPoint) -> type[T]:
        try:
            loaded: Any = point.load()
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"{self._kind} {point.name!r} needs the package {error.name!r}, which is not installed: "
                f"pip install 'oncemq[{extra_for(error.name or '')}]'"
            ) from error
        return loaded  # type: ignore[no-any-return]


def extra_for(module: str) -> str:
    """Return the extra of this distribution that installs `module`."""
    extras = {
        "pika": "rabbitmq",
        "confluent_kafka": "kafka",
        "psycopg": "postgres",
        "pymysql": "mysql",
        "aiosqlite": "async",
        "asyncmy": "async",
        "prometheus_client": "metrics",
        "rediscluster": "redis-py-cluster",
    }
    return extras.get(module.partition(".")[0], module)
