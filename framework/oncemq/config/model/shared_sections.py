"""Sections that consumers share with topics, and with their routes: what a message means, and how often it is tried."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from oncemq.config.model.expires import AttemptsFrom
from oncemq.config.model.fields import (
    VARIABLE,
    Count,
    Duration,
    Exceptions,
    Expressions,
    Factor,
    NonNegative,
    Reference,
    Share,
    Text,
    WrongValue,
    reference,
)
from oncemq.config.model.section import Section


def words(*words: str) -> WithJsonSchema:
    """Return the JSON Schema of a field with these values."""
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, VARIABLE]})


BodyFormat = Annotated[Text, words("json", "confluent-json", "text", "bytes")]


class Backoff(Section):
    """Length of the pauses between the attempts of a message."""

    first: Duration | None = Field(
        None, description="Pause before the second try. Default 1s.", examples=["1s"]
    )
    factor: Factor | None = Field(
        None, description="Every further pause is so many times the one before. Default 4.", examples=[2]
    )
    max: Duration | None = Field(None, description="No pause is longer. Default 10m.", examples=["10m"])
    jitter: Share | None = Field(
        None, description="Each pause is drawn from ± this share of itself. Default 0.2.", examples=[0.2]
    )


class RetryRule(Section):
    """How often a failed message is tried, and when."""

    attempts: Count | None = Field(
        None, description="Tries in all, the first included. Default 6.", examples=[6]
    )
    backoff: Backoff | None = Field(None, description="The pauses between the tries.")
    immediate: NonNegative | None = Field(
        None,
        description="Further tries at once, in the same process and each in a transaction of its own, before a failure "
        "counts as an attempt. Default 0.",
        examples=[2],
    )


class Retry(RetryRule):
    """How often a failed message is tried before it becomes a dead letter; also by the exception's class."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, RetryRule] = Field(init=False)

    attempts_from: AttemptsFrom | None = Field(
        None,
        description="A header by which producers ask for fewer tries of a message, such as 1: a whole number. `attempts` is the "
        "most; what is no number, or smaller than 1, asks for nothing. Default: producers have no say.",
        examples=["headers.attempts"],
    )
    never: tuple[Exceptions, ...] | None = Field(
        None,
        description="Exceptions for which no further try helps: the message becomes a dead letter at once.",
        examples=[["ValueError", "billing:CardDeclined"]],
    )
    errors: dict[str, RetryRule] | None = Field(
        None,
        description="Other rules for exceptions of these classes and their subclasses. In YAML a class may stand "
        "directly below `retry`, too.",
        examples=[{"httpx.TimeoutException": {"attempts": 20}}],
    )

    @property
    def by_error(self) -> dict[str, RetryRule]:
        """Return the rules for classes of exceptions, however they are written."""
        return {**(self.errors or {}), **(self.__pydantic_extra__ or {})}


class Concurrency(Section):
    """How many messages with the same value are worked on at once."""

    by: Text = Field(description="The expression of the value.", examples=["body.merchant"])
    limit: Count = Field(description="The most messages of a value at once, in each process.", examples=[10])


class AskedDelay(Section):
    """Where producers ask for a delay of a message, and the longest that they get."""

    by: Text = Field(
        description="The expression of the delay: a duration since the message was published, such as `30s`, or ISO 8601 with a time "
        "zone.",
        examples=["headers.delay"],
    )
    limit: Duration = Field(
        description="The longest delay; who asks for more gets this one.", examples=["1h"]
    )


class OnDead(Section):
    """What happens when a message has finally failed."""

    run: Reference | None = Field(
        None,
        description="Your function, as `module:name`, that runs once, in a transaction of its own. Needs `unique_key` or `tiered`.",
        examples=["orders:compensate"],
    )
    hold_key: bool | None = Field(
        None,
        description="true: later messages of the key wait in the ledger until a person replays or purges the dead letter. "
        "Default false.",
        examples=[True],
    )
    most: Count | None = Field(
        None,
        description="So many messages of a key wait behind a dead letter; what comes then is a dead letter, too. Default 1000.",
        examples=[1000],
    )


def _on_dead(value: Any) -> Any:
    """Return a function's name and the word `hold_key` as the mappings that they stand for."""
    if isinstance(value, str) and value == "hold_key":
        return {"hold_key": True}
    if not isinstance(value, Mapping):
        return {"run": reference(value)}
    if value.get("run") is None and not value.get("hold_key"):
        raise WrongValue(
            "names neither run nor hold_key", "write hold_key, or the function: orders:compensate"
        )
    if value.get("most") is not None and not value.get("hold_key"):
        raise WrongValue("has most, which belongs to hold_key", "write hold_key: true, or leave most out")
    return value


OnDeadField = Annotated[
    OnDead,
    BeforeValidator(_on_dead, json_schema_input_type=Literal["hold_key"] | Reference | OnDead),
]


class RouteMeaning(Section):
    """Meaning of a message, as far as it may differ between the routes of a consumer."""

    key: Expressions | None = Field(
        None,
        description="The business entity a message is about; decides order, locks and which worker.",
        examples=["body.order_id", "keys[0]"],
    )
    version: Text | None = Field(
        None, description="The entity's version or sequence number.", examples=["body.version"]
    )
    identity: Expressions | None = Field(
        None,
        description="What makes two messages the same one. Default: key and version, or the key alone.",
        examples=[["body.order_id", "body.payment_no"], "message_id"],
    )
    schema_: Reference | None = Field(
        None,
        alias="schema",
        description="A type of yours that every body must be valid for, as `module:Name`.",
        examples=["orders.events:OrderPaid"],
    )


class Meaning(RouteMeaning):
    """Meaning of a message; a topic declares it for all its consumers, a consumer may declare its own."""

    format: BodyFormat | None = Field(
        None,
        description="How bodies are encoded: `json`, `confluent-json` (with a schema registry's header), `text` or `bytes`. Default json.",
        examples=["json"],
    )
