"""Payloads that do not validate: the error says where, and never repeats the input."""

from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from oncemq.errors import InvalidPayload
from support.benches.binding import Order, Ride, call


def test_an_invalid_payload_says_where_without_saying_what() -> None:
    """Field paths and reasons; never a value, which may be a secret."""

    class Card(BaseModel):
        number: int
        kind: Literal["visa"]

    class Payment(BaseModel):
        cards: list[Card]

    def handler(payment: Payment): ...

    with pytest.raises(InvalidPayload) as error:
        call(handler, {"cards": [{"number": "hunter2", "kind": "hunter2"}]})
    text = str(error.value)
    assert text.startswith("the body is not a valid ")
    assert "cards[0].number: " in text
    assert "cards[0].kind: " in text
    assert "hunter2" not in text
    assert error.value.__suppress_context__


@pytest.mark.parametrize("kind", [Annotated[Order | Ride, Field()], "uuid", "tag"])
def test_no_error_text_of_pydantic_repeats_the_input(kind: Any) -> None:
    """Also those messages that quote what they could not parse."""

    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    annotation = {"uuid": UUID, "tag": Annotated[Cat | Dog, Field(discriminator="kind")]}.get(str(kind), kind)

    def handler(body): ...

    handler.__annotations__["body"] = annotation
    for payload in ("hunter2", {"kind": "hunter2"}, {"id": ["hunter2"]}):
        with pytest.raises(InvalidPayload) as error:
            call(handler, payload)
        assert "hunter2" not in str(error.value)


def test_an_invalid_payload_is_short_and_printable() -> None:
    """Hostile field names and crowds of errors make no long or forged text."""

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")

    def handler(body: Strict): ...

    with pytest.raises(InvalidPayload) as error:
        call(handler, {f"{number}\n\x1b[31m" + "x" * 1000: 1 for number in range(20)})
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000
    assert "and 15 more" in str(error.value)


def test_a_crowd_of_errors_is_counted_not_listed() -> None:
    """A hundred thousand wrong elements take no time to describe."""

    def handler(body: list[int]): ...

    with pytest.raises(InvalidPayload, match="100,000 places are wrong"):
        call(handler, ["x"] * 100_000)


def test_a_strict_model_reads_dates_from_json() -> None:
    """JSON has no dates, so a strict model takes them as text."""

    class Event(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date
        count: int

    def handler(event: Event):
        return event.day

    assert call(handler, {"day": "2024-05-01", "count": 1}) == date(2024, 5, 1)
    with pytest.raises(InvalidPayload, match="count"):
        call(handler, {"day": "2024-05-01", "count": "1"})


def test_a_validators_own_bug_is_not_the_messages_fault() -> None:
    """An error that is no validation error passes as any error of the handler."""

    class Buggy(BaseModel):
        id: str

        @field_validator("id")
        @classmethod
        def broken(cls, value: str) -> str:
            raise KeyError(value)

    def handler(body: Buggy): ...

    with pytest.raises(KeyError):
        call(handler)
