"""Expands `${VAR}` and `${VAR:-default}` inside single values; a missing one is an error, `$${` is a plain `${`."""

import re
from collections.abc import Mapping

from oncemq.config.source.problems import Problems
from oncemq.config.source.scalars import resolve
from oncemq.config.source.tree import Expanded, Node, Scalar, scalars

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^{}]*)(\}?)")
_INSIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def expand(node: Node, environment: Mapping[str, str], problems: Problems) -> None:
    """Replace every reference below `node` in place; a reference that cannot be replaced becomes a problem."""
    for _path, scalar in scalars(node):
        if isinstance(scalar.value, str) and "${" in scalar.value:
            _expand_one(scalar, environment, problems)


def _expand_one(scalar: Scalar, environment: Mapping[str, str], problems: Problems) -> None:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        return _value(match, environment, scalar, problems)

    source = scalar.value
    text = Expanded(_REFERENCE.sub(replace, source))
    text.scalar = resolve(text) if scalar.unquoted else str(text)
    scalar.value, scalar.source = text, source


def _value(match: re.Match[str], environment: Mapping[str, str], scalar: Scalar, problems: Problems) -> str:
    inside = _INSIDE.fullmatch(match[2])
    if inside is None or not match[3]:
        problems.add(
            scalar.position,
            "a `${` that is not a variable",
            "write ${NAME} or ${NAME:-default}, and $${ where ${ itself is meant",
        )
        return ""
    name, default = inside[1], inside[2]
    value = environment.get(name)
    if value is None and default is None:
        problems.add(
            scalar.position,
            f"the environment variable {name} is not set",
            f"set it, or write ${{{name}:-default}}",
        )
        return ""
    return default if default is not None and not value else value or ""
