"""Settings of `embedded://…` and its options: which file or memory, how long a lease, how hard a commit."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from oncemq.common.durations import format_duration, parse_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import ConfigError
from oncemq.registry import did_you_mean

_LOGIN = re.compile("[@:]")
_USER = re.compile("/[^/:@]+:[^@]*@")
"""A user with a password, where a file's name should be."""
_OPTIONS = ("lease", "lock_timeout", "max_body", "power_safe")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the broker lives and how it behaves.

    Args:
        path: the file; None in memory.
        memory: the name under which adapters of this process share a broker in memory.
        lease: how long a delivery is ours unless extended.
        lock_timeout: how long to wait for another process that is writing.
        max_body: bytes; larger messages are refused.
        power_safe: a confirmed message survives a power failure too, for one disk flush per publish.
    """

    path: Path | None
    memory: str = ""
    lease: timedelta = timedelta(minutes=5)
    lock_timeout: timedelta = timedelta(seconds=10)
    max_body: int = 64 * 1024 * 1024
    power_safe: bool = True

    @property
    def place(self) -> str:
        """Return the broker's place as errors name it."""
        return str(self.path) if self.path else f"embedded://{self.memory} (in memory)"


def read_settings(url: str, options: Mapping[str, Any], broker: str) -> Settings:
    """Return what URL and options say.

    As in SQLAlchemy's URLs, `embedded:///shop.db` is relative to the current folder and
    `embedded:////var/lib/shop.db` is absolute; `embedded://` and `embedded://name` are in memory.

    Raises:
        ConfigError: with every problem found.
    """
    problems = [
        f"broker {broker!r}: leave out 'declare': an embedded broker makes topics and groups on first use"
        if name == "declare"
        else f"broker {broker!r}: unknown option {name!r}{did_you_mean(name, list(_OPTIONS))}"
        for name in options
        if name not in _OPTIONS
    ]
    values: dict[str, Any] = {}
    for name, read in (
        ("lease", _duration),
        ("lock_timeout", _duration),
        ("max_body", _size),
        ("power_safe", _flag),
    ):
        if options.get(name) is not None:
            try:
                values[name] = read(options[name])
            except ValueError as error:
                problems.append(f"broker {broker!r}: option {name!r}: {error}")
    parts = _split(url)
    path = unquote(parts.path)
    misplaced = _LOGIN.search(parts.netloc) or _USER.match(path)
    if (parts.netloc and path not in ("", "/")) or parts.query or parts.fragment or misplaced:
        problems.append(
            f"broker {broker!r}: an embedded broker is a file, embedded:///shop.db (embedded:////var/lib/shop.db "
            "for an absolute path), or in memory, embedded:// or embedded://name; options stand beside the URL"
        )
    if problems:
        raise ConfigError(problems)
    if path in ("", "/"):
        return Settings(path=None, memory=parts.netloc or "default", **values)
    return Settings(path=Path(path[1:]).absolute(), **values)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # What cannot be read is refused below, with what is none of ours in it.
        return SplitResult("embedded", "@", "", "", "")


def _duration(value: Any) -> timedelta:
    duration = value if isinstance(value, timedelta) else parse_duration(str(value))
    if duration <= timedelta(0):
        raise ValueError("must be longer than zero")
    return duration


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 512 * 1024 * 1024:
        raise ValueError(f"{value!r} is not a number of bytes between 1 and 536870912")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")  # noqa: TRY004 - collected with the others
    return value


def problems(settings: Settings, facts: ConsumerFacts) -> Iterator[Problem]:
    """Yield unsafe settings, and settings without effect."""
    limit = facts.hard_limit or facts.soft_limit or facts.unit_time
    if settings.lease <= limit:
        yield Problem(
            f"a delivery is leased for {format_duration(settings.lease)}, but one unit of this consumer may last "
            f"{format_duration(limit)}: its messages would be delivered to others meanwhile",
            f"set the broker's lease above {format_duration(limit + timedelta(seconds=1))}",
            "broker.lease",
        )
    if settings.path is None:
        yield Problem(
            f"broker {facts.broker!r} is in memory: its messages end with this process, and other processes "
            "(run --processes, publish, dead-letters) do not see them",
            "name a file: embedded:///messages.db",
            "broker.url",
            Severity.WARNING,
        )
    for name in facts.options:
        yield Problem(
            f"the option {name!r} means nothing to an embedded broker; it is ignored",
            "",
            f"topic.{name}",
            Severity.WARNING,
        )
