"""Reads declared options one by one and collects every problem, so that a user sees all of them at once."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from oncemq.common.durations import format_duration, parse_duration
from oncemq.common.problems import Problem
from oncemq.errors import ConfigError
from oncemq.registry import did_you_mean

T = TypeVar("T")


class OptionReader:
    """Hands out options by name and kind; `finish` raises what was wrong.

    Args:
        options: as declared.
        known: every name that may be there.
        what: how errors call the place, such as "RabbitMQ broker option".
        instead: what to write instead of options that other brokers have.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        known: Sequence[str],
        what: str,
        instead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.options = options
        self._what = what
        self.problems: list[Problem] = [
            Problem(f"there is no {what} {name!r}", instead[name], str(name))
            if name in instead
            else Problem(f"unknown {what} {name!r}{did_you_mean(str(name), list(known))}", where=str(name))
            for name in options
            if name not in known
        ]

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text; empty text is a problem."""
        return self._read(name, default, self._as_text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a yes or no."""
        return bool(self._read(name, default, self._as_flag))

    def number(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """Return a whole number from `low` to `high`."""
        return self._read(name, default, lambda value: self._as_number(value, low, high))

    def duration(self, name: str, default: timedelta, low: timedelta, high: timedelta) -> timedelta:
        """Return a duration from `low` to `high`."""
        found = self._read(name, default, lambda value: self._as_duration(value, low, high))
        return default if found is None else found

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """Return one of `allowed`."""
        return self._read(name, default, lambda value: self._as_choice(value, allowed)) or default

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return self._read(name, (), self._as_texts) or ()

    def complain(self, name: str, text: str, advice: str = "") -> None:
        """Add a problem about the option `name`."""
        self.problems.append(Problem(text, advice, name))

    def finish(self) -> None:
        """Raise ConfigError if there was any problem."""
        if self.problems:
            raise ConfigError(self.problems)

    def _read(self, name: str, default: T | None, convert: Callable[[Any], T]) -> T | None:
        value = self.options.get(name)
        if value is None:
            return default
        try:
            return convert(value)
        except ValueError as error:
            self.complain(name, f"{self._what} {name!r}: {error}")
            return default

    @staticmethod
    def _as_text(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError("write text that is not empty")
        return value

    @staticmethod
    def _as_flag(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("write true or false")  # noqa: TRY004 - all conversions fail alike
        return value

    @staticmethod
    def _as_number(value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"write a whole number from {low} to {high}")
        return value

    @staticmethod
    def _as_duration(value: Any, low: timedelta, high: timedelta) -> timedelta:
        if isinstance(value, str):
            value = parse_duration(value)
        if not isinstance(value, timedelta):
            raise ValueError("write a number and a unit, like 10s")  # noqa: TRY004 - all conversions fail alike
        if not low <= value <= high:
            raise ValueError(f"write a duration from {format_duration(low)} to {format_duration(high)}")
        return value

    @staticmethod
    def _as_choice(value: Any, allowed: Sequence[str]) -> str:
        if value not in allowed:
            raise ValueError(f"write one of {', '.join(allowed)}")
        return str(value)

    @staticmethod
    def _as_texts(value: Any) -> tuple[str, ...]:
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple) or not all(
            isinstance(entry, str) and entry for entry in entries
        ):
            raise ValueError("write a list of texts")
        return tuple(entries)
