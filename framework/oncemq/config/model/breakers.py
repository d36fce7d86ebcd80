"""Fields below `breakers:`; a number is short for the share above which a breaker opens."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Count, Duration, Share, one_of
from oncemq.config.model.section import Section

_ACTIONS = ("warn", "slow", "pause")
Action = Annotated[
    str, PlainValidator(one_of(*_ACTIONS)), WithJsonSchema({"anyOf": [{"enum": list(_ACTIONS)}, VARIABLE]})
]


class Breaker(Section):
    """When a breaker opens, and what it does then."""

    above: Share = Field(
        description="It opens when a larger share of the window's messages is of its kind, from 0 to 1.",
        examples=[0.5],
    )
    window: Duration | None = Field(None, description="How far back it looks. Default 1m.", examples=["1m"])
    minimum: Count | None = Field(
        None, description="With fewer messages in the window it does not judge. Default 100.", examples=[100]
    )
    action: Action | None = Field(
        None,
        description="`warn`: it logs, and shows itself in metrics and health; `slow`: its process also takes a quarter as many messages "
        "a second; `pause`: the consumer is paused in all processes. Default warn.",
        examples=["pause"],
    )
    open_for: Duration | None = Field(
        None,
        description="How long it stays open before it tries again; twice as long each time in a row, 10m at most. Default 30s.",
        examples=["30s"],
    )


def _in_full(value: Any) -> Any:
    """Return `0.5` as the mapping that it stands for."""
    return value if isinstance(value, Mapping | Breaker) else {"above": value}


BreakerField = Annotated[Breaker, BeforeValidator(_in_full, json_schema_input_type=Share | Breaker)]


class Breakers(Section):
    """Breakers of a consumer, each with the share above which it opens."""

    duplicates: BreakerField | None = Field(
        None, description="Share of messages that had been applied before.", examples=[0.5]
    )
    failures: BreakerField | None = Field(
        None, description="Share of messages that fail, or cannot be read.", examples=[0.2]
    )
    hot_key: BreakerField | None = Field(
        None, description="Share of messages that have the most frequent key.", examples=[0.3]
    )
