"""Registers versions of payload schemas: each topic and version once, with the place where it is written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import isroutine
from typing import Any

from pydantic import PydanticUserError, TypeAdapter

from oncemq.schemas.keywords import DRAFTS, Schema, misuses

_NAME = re.compile(r"(.+)\.v([1-9][0-9]{0,8})")
_ENDING = re.compile(r"\.(json|yaml|yml)$")


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a topic's payload.

    Args:
        topic: the topic's name.
        version: from 1.
        schema: JSON Schema.
        place: where it is written, for people.
    """

    topic: str
    version: int
    schema: Schema = field(repr=False)
    place: str

    @property
    def name(self) -> str:
        """Its version as people write it, such as `v2`."""
        return f"v{self.version}"


class Registry:
    """The registered versions of all topics."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, Registered]] = {}

    def register(self, version: Registered) -> str:
        """Take a version; return why it is refused, or nothing.

        A topic and version that is registered is refused even if both schemas are equal: with two places, one of
        them would be changed one day and the other not.
        """
        known = self._found.setdefault(version.topic, {})
        if version.version in known:
            other = known[version.version].place
            return (
                f"{version.name} of {version.topic!r} is registered twice: in {other} and in {version.place}"
            )
        known[version.version] = version
        return ""

    def topics(self) -> list[str]:
        """Return the topics that have a version, by name."""
        return sorted(topic for topic, versions in self._found.items() if versions)

    def versions(self, topic: str) -> list[Registered]:
        """Return a topic's versions, the lowest first."""
        return [version for _, version in sorted(self._found.get(topic, {}).items())]


def name_and_version(text: str) -> tuple[str, int] | None:
    """Return topic and version of `order.paid.v2`, of a file with such a name, or of a URL that ends so; else None."""
    found = _NAME.fullmatch(_ENDING.sub("", text.rpartition("/")[2]))
    return (found[1], int(found[2])) if found else None


def described(kind: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a model, or of another type of a payload, that JSON Schema can describe.

    Raises:
        ValueError: it cannot; says why.
    """
    if isroutine(kind):
        raise ValueError(f"no JSON Schema can be made of it: {kind.__qualname__} is a function, not a type")
    try:
        adapter = TypeAdapter(kind)
        adapter.rebuild(raise_errors=True)
        adapter.json_schema()
    except (PydanticUserError, TypeError, ValueError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"no JSON Schema can be made of it: {reason}") from None
    return adapter


def faults(schema: Schema) -> Iterator[str]:
    """Yield why a schema cannot be used."""
    draft = schema.get("$schema", DRAFTS[-1]) if isinstance(schema, dict) else DRAFTS[-1]
    if not isinstance(draft, str) or not any(name in draft for name in DRAFTS):
        yield f"is of the draft {draft!r}: write it for draft-07 or newer"
        return
    yield from misuses(schema)
