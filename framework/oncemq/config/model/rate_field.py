"""Field `rate:` of a consumer, and its short form: `200/s`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, WrongValue, count, text
from oncemq.engine.rates.rule import RateRule

_RATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*/\s*(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_FIELDS: Final = ("limit", "burst", "shared")
_EXAMPLE: Final = "write 200/s, 30/m or 1000/h"


def _rate(value: Any) -> RateRule:
    if isinstance(value, RateRule):
        return value
    given = value if isinstance(value, Mapping) else {"limit": value}
    unknown = [str(name) for name in given if name not in _FIELDS]
    if unknown:
        raise WrongValue(f"has the unknown name {unknown[0][:80]!r}", f"known here: {', '.join(_FIELDS)}")
    if "limit" not in given:
        raise WrongValue("has no limit", "write limit: 200/s")
    shared = given.get("shared", False)
    if not isinstance(shared, bool):
        raise WrongValue("has a `shared` that is neither true nor false", "write shared: true")
    burst = count(given["burst"]) if "burst" in given else None
    limit, shown = _per_second(given["limit"])
    return RateRule(limit, burst, shared, shown)


def _per_second(value: Any) -> tuple[float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise WrongValue(f"{value} has no unit", f"write {value}/s, {value}/m or {value}/h")
    shown = text(value)
    found = _RATE.fullmatch(shown.strip())
    if found is None:
        raise WrongValue(f"{shown[:80]!r} is not a rate", _EXAMPLE)
    limit = float(found[1]) / _SECONDS[found[2]]
    if limit <= 0:
        raise WrongValue("would let no message pass", f"{_EXAMPLE}; to stop a consumer: oncemq pause")
    return limit, shown.strip()


_LIMIT: Final = {"type": "string", "pattern": f"^{_RATE.pattern}$", "examples": ["200/s", "30/m", "1000/h"]}
RateField = Annotated[
    RateRule,
    PlainValidator(_rate),
    WithJsonSchema(
        {
            "anyOf": [
                _LIMIT,
                VARIABLE,
                {
                    "type": "object",
                    "properties": {
                        "limit": {
                            "anyOf": [
                                {**_LIMIT, "description": "Messages in a second, minute or hour."},
                                VARIABLE,
                            ]
                        },
                        "burst": {
                            "type": "integer",
                            "minimum": 1,
                            "description": "The most messages at once after a pause. Default those of a fifth of a second.",
                        },
                        "shared": {
                            "type": "boolean",
                            "description": "All processes together, by a count in the app's Redis; default false: each process.",
                        },
                    },
                    "required": ["limit"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
