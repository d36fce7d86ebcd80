"""Name made of a message's values: a template filled with its key and with expressions, such as a lock's name."""

import re
from collections.abc import Callable
from string import Formatter
from typing import Any

from oncemq.contracts.unit import Unit
from oncemq.message.envelope import Delivery
from oncemq.message.expressions import Expression

KEY = "key"
Part = str | Callable[[Unit, Delivery], str]


class NameTemplate:
    """A compiled template such as `ride-lock-{key}` or `stock-{body.shop}-{key}`; `{{` and `}}` are plain braces.

    Args:
        text: the template.
        expression: compiles the text between braces.
        spell: returns the text for an expression's value, which is its first argument; the second is the expression. It may
            raise MessageRefused.

    Raises:
        ValueError: the template or one of its expressions is invalid.
    """

    def __init__(
        self, text: str, expression: Callable[[str], Expression], spell: Callable[[Any, str], str]
    ) -> None:
        self.text = text
        self._spell = spell
        self._parts: list[Part] = []
        self.fields: list[str] = []
        for literal, field, form, conversion in Formatter().parse(text):
            if literal:
                self._parts.append(literal)
            if field is None:
                continue
            if form or conversion or not field:
                raise ValueError(f"braces may contain key or an expression, not {field!r}")
            self.fields.append(field)
            self._parts.append(_the_key if field == KEY else self._found(expression(field), field))

    @property
    def of_key_alone(self) -> bool:
        """Whether the name depends on the key alone."""
        return all(field == KEY for field in self.fields)

    def of(self, unit: Unit, delivery: Delivery) -> str:
        """Return the name for a delivery.

        Raises:
            MessageRefused: the message lacks a value that the name needs.
        """
        return "".join(part if isinstance(part, str) else part(unit, delivery) for part in self._parts)

    def of_key(self, key: str) -> str:
        """Return the name with `key` in place of each value."""
        return "".join(part if isinstance(part, str) else key for part in self._parts)

    def pattern(self) -> str:
        """Return the glob pattern of Redis that all names match."""
        return "".join(
            re.sub(r"([*?\[\]\\])", r"\\\1", part) if isinstance(part, str) else "*" for part in self._parts
        )

    def _found(self, expression: Expression, field: str) -> Callable[[Unit, Delivery], str]:
        spell = self._spell
        return lambda unit, delivery: spell(expression(delivery.message, unit.body(delivery)), field)


def _the_key(unit: Unit, delivery: Delivery) -> str:  # noqa: ARG001
    return delivery.key
