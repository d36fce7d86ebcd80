"""Fields below `claim_check:` of a topic."""

import re
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Duration, Text, WrongValue, text
from oncemq.config.model.section import Section
from oncemq.config.source.tree import Expanded

_SIZE: Final = re.compile(r"([1-9]\d{0,11})\s*(B|KiB|MiB)")
_FACTOR: Final = {"B": 1, "KiB": 1024, "MiB": 1024 * 1024}
_LARGEST: Final = 1024 * 1024 * 1024


def _size(value: Any) -> int:
    value = value.scalar if isinstance(value, Expanded) else value
    if isinstance(value, int) and not isinstance(value, bool):
        raise WrongValue(f"{value} has no unit", f"write {value}B, or 256KiB, 64MiB")
    shown = text(value).strip()
    found = _SIZE.fullmatch(shown)
    if found is None:
        raise WrongValue(f"{shown[:80]!r} is not a size", "write 256KiB or 64MiB")
    size = int(found[1]) * _FACTOR[found[2]]
    if size > _LARGEST:
        raise WrongValue(f"{shown} is out of range", "write 1024MiB at most")
    return size


Size = Annotated[
    int,
    PlainValidator(_size),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": f"^{_SIZE.pattern}$", "examples": ["256KiB"]}, VARIABLE]}
    ),
]


class ClaimCheckSection(Section):
    """Where a topic's large bodies lie; the messages refer to them."""

    store: Text = Field(
        description="The place: `file:///…`, `s3://bucket/prefix` or another URL of fsspec; the same for all who publish and consume.",
        examples=["file:///srv/bodies", "s3://our-bodies/orders"],
    )
    over: Size | None = Field(
        None, description="Larger bodies are kept in the store. Default 256KiB.", examples=["256KiB"]
    )
    most: Size | None = Field(
        None,
        description="The largest body that is published, or fetched. Default 64MiB.",
        examples=["64MiB"],
    )
    keep: Duration | None = Field(
        None,
        description="How long a body is kept after its message was published, or is due. Default: the longest `keep` of the topic's "
        "consumers, 7d without any.",
        examples=["14d"],
    )
    options: dict[str, Any] | None = Field(
        None,
        description="For fsspec's file system; secrets are better left to its own environment variables.",
        examples=[{"endpoint_url": "https://s3.example.org"}],
    )
