"""Fields below `expires:`, and its short forms: a duration, or the expression of a deadline; the header of `attempts_from`."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Duration, Text, WrongValue, duration, one_of
from oncemq.config.model.section import Section

_THEN = ("ignore", "dead_letter")
Then = Annotated[
    str, PlainValidator(one_of(*_THEN)), WithJsonSchema({"anyOf": [{"enum": list(_THEN)}, VARIABLE]})
]


class Expires(Section):
    """When a message is too old to run, and what becomes of it."""

    after: Duration | None = Field(
        None, description="Longer ago than this it must not have been published.", examples=["10m"]
    )
    deadline: Text | None = Field(
        None,
        description="The message's own deadline: ISO 8601 with a time zone, or seconds or milliseconds since 1970. A "
        "message without one does not expire by it.",
        examples=["headers.deadline", "body.valid_until"],
    )
    then: Then | None = Field(
        None,
        description="`ignore`: an expired message is acknowledged, with a line in log and history; `dead_letter`: it becomes a "
        "dead letter, as one always does that failed before. Default ignore.",
        examples=["dead_letter"],
    )


_HEADER = re.compile(r"headers\.(?P<name>[^\s.]+)")


def _of_header(value: Any) -> Any:
    """Return the text `headers.NAME`; how often a message is tried must be known of one that cannot be read, too."""
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise WrongValue(f"{value!r} names no header", "write headers. and its name, like headers.attempts")
    return value


AttemptsFrom = Annotated[
    str,
    PlainValidator(_of_header),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": rf"^{_HEADER.pattern.replace('?P<name>', '')}$"}, VARIABLE]}
    ),
]


def _in_full(value: Any) -> Any:
    """Return `10m` and `headers.deadline` as the mappings that they stand for."""
    if isinstance(value, timedelta | int | float) and not isinstance(value, bool):
        return {"after": duration(value)}
    if isinstance(value, Mapping) and not value.keys() & {"after", "deadline"}:
        raise WrongValue("names no time", "write after: 10m, or deadline: headers.deadline")
    if not isinstance(value, str):
        return value
    try:
        return {"after": duration(value)}
    except WrongValue:
        if value[:1].isdigit():
            raise
        return {"deadline": value}


ExpiresField = Annotated[Expires, BeforeValidator(_in_full, json_schema_input_type=Duration | Text | Expires)]
