"""Reads a strategy's options: each is taken by name; an unknown option is refused with a suggestion."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from oncemq.common.durations import parse_duration
from oncemq.common.problems import Problem
from oncemq.contracts.strategy import Scope
from oncemq.errors import ConfigError
from oncemq.message.expressions import Expression
from oncemq.registry import did_you_mean


class Options:
    """The options of one strategy.

    Args:
        strategy: its registry name, for errors.
        given: the options of the configuration.
        scope: compiles expressions.
    """

    def __init__(self, strategy: str, given: Mapping[str, Any], scope: Scope) -> None:
        self._strategy = strategy
        self._given = dict(given)
        self._scope = scope

    def refuse(self, text: str, advice: str = "", *, name: str = "") -> NoReturn:
        """Raise a ConfigError about this strategy, or about its option `name`."""
        where = f"{self._strategy}.{name}" if name else self._strategy
        raise ConfigError([Problem(text, advice, where)])

    def known(self, *names: str) -> None:
        """Refuse options of any other name."""
        for name in self._given:
            if name not in names:
                self.refuse(f"unknown option {name!r}{did_you_mean(str(name), list(names))}")

    def raw(self, name: str) -> Any:
        """Return the raw value; None if not given."""
        return self._given.get(name)

    def has(self, name: str) -> bool:
        """Return whether the option is given."""
        return self._given.get(name) is not None

    def text(self, name: str) -> str:
        """Return a required text."""
        value = self._given.get(name)
        if not isinstance(value, str) or not value:
            self.refuse(f"{name} must be a text, not {value!r}", name=name)
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of `choices`."""
        value = self._given.get(name, default)
        if value not in choices:
            self.refuse(f"{value!r} is not possible here{did_you_mean(str(value), list(choices))}", name=name)
        return str(value)

    def park_limit(self, early: str) -> int:
        """Return the limit of parked messages per key."""
        limit = self.whole("park_limit", 1000)
        if limit < 1:
            self.refuse(
                f"with room for {limit} messages an early one has no place to wait",
                "write a number above 0, or another `early`",
                name="park_limit",
            )
        if early != "park" and self.has("park_limit"):
            self.refuse(f"nothing is parked with `early: {early}`", "leave it out", name="park_limit")
        return limit

    def for_waiting(self, early: str, *names: str) -> None:
        """Refuse options about waiting messages where no message waits."""
        for name in names:
            if early not in {"park", "retry"} and self.has(name):
                self.refuse(f"nothing waits with `early: {early}`", "leave it out", name=name)

    def whole(self, name: str, default: int) -> int:
        """Return a whole number."""
        value = self._given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"{value!r} is not a whole number", name=name)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._given.get(name, default)
        if not isinstance(value, bool):
            self.refuse(f"{value!r} is neither true nor false", name=name)
        return value

    def duration(self, name: str) -> timedelta | None:
        """Return a duration; None if not given."""
        value = self._given.get(name)
        if value is None or isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.refuse(str(error), name=name)

    def names(self, name: str) -> list[str]:
        """Return a list of at least one text, without duplicates."""
        value = self._given.get(name)
        texts = [value] if isinstance(value, str) else value
        if (
            not isinstance(texts, list | tuple)
            or not texts
            or not all(isinstance(t, str) and t for t in texts)
        ):
            self.refuse(f"{name} must be a list of texts, not {value!r}", name=name)
        twice = next((text for text in texts if list(texts).count(text) > 1), None)
        if twice is not None:
            self.refuse(f"{twice!r} stands there twice", name=name)
        return list(texts)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping with at least one entry."""
        value = self._given.get(name)
        if not isinstance(value, Mapping) or not value or not all(isinstance(key, str) for key in value):
            self.refuse(f"{name} must be a mapping, not {value!r}", name=name)
        return dict(value)

    def imported(self, name: str) -> Any:
        """Return an object of the user's code: given as it is, or as `module:name`."""
        value = self._given.get(name)
        return self._scope.import_object(value) if isinstance(value, str) else value

    def expression(self, name: str, text: Any) -> Expression:
        """Return a compiled expression; `name` is the option that contains it."""
        if not isinstance(text, str):
            self.refuse(f"{text!r} is not an expression", "write one like body.order_id", name=name)
        try:
            return self._scope.expression(text)
        except ValueError as error:
            self.refuse(str(error), "write one like body.order_id", name=name)
