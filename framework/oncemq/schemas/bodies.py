"""Checks bodies against the registered schema of their own version, and says in words what differs."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from oncemq.common.redaction import escape
from oncemq.errors import MissingExtra, UnacceptedSchema
from oncemq.schemas.registry import Registered

INSTALL: Final = 'pip install "oncemq[schemas]"'
_SHOWN: Final = 5
_SHOWN_DIGITS: Final = 60
_LONGEST: Final = 200
_OUTSIDE: Final = re.compile(r"Resource '([^']*)' is not present")
_VALUE: Final = "the value"
"""Stands in errors for what the body has there: it may be a secret."""


class UnusableSchema(ValueError):
    """No body can be checked against this schema; says why."""


class BodySchemas:
    """The schemas of a topic's versions.

    `format` is no rule for bodies, as in JSON Schema's own default: producers' libraries write dates in more ways than
    `date-time` allows.

    Args:
        topic: the topic's name, for errors.
        versions: those that are registered.

    Raises:
        MissingExtra: the library that checks bodies is not installed.
        UnusableSchema: one of them cannot be used.
    """

    def __init__(self, topic: str, versions: Iterable[Registered]) -> None:
        try:
            import jsonschema_rs  # noqa: F401, PLC0415 - optional
        except ImportError:
            raise MissingExtra(
                f"checking bodies of {topic!r} against their schemas needs a library: {INSTALL}"
            ) from None
        self._topic = topic
        self._versions = {version.version: version for version in versions}
        self._compiled = {number: _compiled(version) for number, version in self._versions.items()}

    @property
    def numbers(self) -> list[int]:
        """Return the versions, the lowest first."""
        return sorted(self._versions)

    def check(self, version: int, body: Any, key: str) -> None:
        """Return if a body is as its version says.

        Args:
            version: of the body.
            body: as JSON holds it.
            key: of its message, for errors.

        Raises:
            UnacceptedSchema: it is not, or the version is not registered.
        """
        compiled = self._compiled.get(version)
        if compiled is None:
            known = ", ".join(map(str, self.numbers))
            raise UnacceptedSchema(
                f"message {key!r} of topic {self._topic!r}: version {str(version)[:_SHOWN_DIGITS]} is not registered; registered are {known}"
            )
        if not compiled.is_valid(body):
            registered = self._versions[version]
            raise UnacceptedSchema(
                f"message {key!r} of topic {self._topic!r}: its body of version {version} is not what {registered.name} allows "
                f"({registered.place}): {'; '.join(_differences(compiled, body))}"
            )


def _compiled(version: Registered) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - optional

    try:
        return jsonschema_rs.validator_for(
            version.schema, mask=_VALUE, validate_formats=False, retriever=_refuse_retrieval
        )
    except ValueError as error:
        outside = _OUTSIDE.match(str(error))
        why = (
            _short(str(error))
            if outside is None
            else f"$ref {_short(outside[1])!r} leads out of the schema, and nothing is fetched: write it below $defs"
        )
        raise UnusableSchema(
            f"bodies cannot be checked against {version.name} of {version.topic!r} ({version.place}): {why}"
        ) from None


def _refuse_retrieval(uri: str) -> Any:
    """Refuse what leads out of a schema: nothing is read from the network, nor from other files."""
    raise ValueError(uri)


def _differences(compiled: Any, body: Any) -> Iterator[str]:
    """Yield the path of each difference and what was expected, never the values."""
    found = list(islice(compiled.iter_errors(body), _SHOWN + 1))
    for error in found[:_SHOWN]:
        path = _path(error.instance_path)
        yield f"{path}: {_short(error.message)}" if path else _short(error.message)
    if len(found) > _SHOWN:
        yield "and more"


def _path(steps: Iterable[int | str]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f"{'.' if path else ''}{_short(step)}"
    return path


def _short(text: str) -> str:
    text = text.partition("\n")[0]
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
