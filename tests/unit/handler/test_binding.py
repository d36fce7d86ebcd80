"""From signatures to calls."""

import asyncio
import functools
from concurrent.futures import Future
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from sqlalchemy.orm import Session
from typing_extensions import TypedDict

from oncemq.contracts.checks import Effects
from oncemq.errors import HandlerFault
from oncemq.message.envelope import Envelope
from support.benches.binding import BODY, SESSION, Order, Ride, Token, bound, call, item, refusal, run_of


class Stock(TypedDict):
    """A payload as a typed dictionary."""

    sku: str
    count: int


def test_a_model_is_validated() -> None:
    """A parameter with a pydantic model gets an instance of it."""

    def handler(order: Order):
        return order

    assert call(handler) == Order(id="o-1", paid=3)


def test_a_dataclass_is_validated() -> None:
    """A standard dataclass gets converted fields."""

    def handler(ride: Ride):
        return ride

    assert call(handler, {"id": "r", "day": "2024-05-01"}) == Ride("r", date(2024, 5, 1))


def test_a_typed_dictionary_is_validated() -> None:
    """Numbers as text become numbers, as pydantic does."""

    def handler(stock: Stock):
        return stock

    assert call(handler, {"sku": "a", "count": "2"}) == {"sku": "a", "count": 2}


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (dict, {"a": 1}),
        (list, [1]),
        (str, "text"),
        (bytes, b"raw"),
        (Any, 5),
        (object, None.__class__),
        (dict[str, int], {"a": 1}),
        (list[Stock], [{"sku": "a", "count": 1}]),
        (int, 5),
        (Annotated[int, Field(gt=3)], 5),
        (Literal["a"], "a"),
        (Order | Stock, {"sku": "a", "count": 1}),
    ],
    ids=str,
)
def test_a_plain_type_is_given_as_it_is(annotation: Any, payload: Any) -> None:
    """Dictionaries, lists, texts, bytes and what pydantic knows beyond."""

    def handler(body):
        return body

    handler.__annotations__["body"] = annotation
    assert call(handler, payload) == payload


def test_a_parameter_without_annotation_is_the_decoded_body() -> None:
    """The simplest handler takes one argument and gets everything."""
    assert call(lambda body: body) is not None
    assert call(lambda body: body) == BODY


def test_session_envelope_and_provided_types_are_handed_over() -> None:
    """They are found by annotation, in any order, by name or position."""

    def handler(
        token: Token, envelope: Envelope, order: Order, /, session: Session, *, again: Annotated[Session, "x"]
    ):
        return token, envelope.key, order.id, session, again

    assert call(handler) == ("token of k", "k", "o-1", SESSION, SESSION)


@pytest.mark.parametrize("count", range(4))
def test_every_shape_is_called_with_its_arguments(count: int) -> None:
    """The specialised calls and the general one do the same."""

    def none():
        return ()

    def one(order: Order):
        return (order.id,)

    def two(order: Order, session: Session):
        return order.id, session

    def three(order: Order, session: Session, envelope: Envelope):
        return order.id, session, envelope.key

    assert call([none, one, two, three][count]) == ("o-1", SESSION, "k")[:count]


def test_annotations_as_text_are_understood() -> None:
    """`from __future__ import annotations` makes no difference; the return annotation is not looked at."""
    scope: dict[str, Any] = {"Order": Order, "Session": Session}
    exec("def handler(order: 'Order', session: 'Session') -> 'Nowhere': return order.id", scope)
    assert call(scope["handler"]) == "o-1"


def test_an_unknown_name_in_an_annotation_is_named() -> None:
    """An import under TYPE_CHECKING only is the usual cause, and the text says so."""
    scope: dict[str, Any] = {}
    exec("def handler(order: 'Ordr'): ...", scope)
    text = refusal(scope["handler"])
    assert "'order'" in text
    assert "'Ordr'" in text
    assert "TYPE_CHECKING" in text


def test_methods_partials_and_callable_objects_are_handlers() -> None:
    """Whatever can be called with the arguments."""

    class Shop:
        def award(self, order: Order, session: Session):
            return order.id

        @staticmethod
        def plain(order: Order):
            return order.id

        def __call__(self, order: Order):
            return order.id

    def scaled(order: Order, factor: int, session: Session):
        return order.paid * factor

    assert call(Shop().award) == call(Shop.plain) == call(Shop()) == "o-1"
    assert call(functools.partial(scaled, factor=2)) == 6
    assert call(functools.partial(functools.partial(scaled), factor=3)) == 9


def test_a_decorated_handler_keeps_its_parameters() -> None:
    """functools.wraps is seen through."""

    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @decorator
    def handler(order: Order, session: Session):
        return order.id

    assert call(handler) == "o-1"


def test_a_parameter_with_a_default_and_an_unknown_type_keeps_its_default() -> None:
    """Only what is asked for is filled; what stands behind it is given by name."""

    def handler(order: Order, factor: int = 7, session: Session = None, extra=8):
        return order.id, factor, session, extra

    assert call(handler) == ("o-1", 7, SESSION, 8)


def test_the_only_parameter_is_the_payload_even_with_a_default() -> None:
    """A default does not keep the message away."""

    def handler(order: Order = None):
        return order

    assert call(handler).id == "o-1"


@pytest.mark.parametrize(
    "words", [["'stock: "], ["'order' is the payload"], ["Token", "Session", "Envelope"]]
)
def test_a_second_payload_is_refused(words: list[str]) -> None:
    """The text names both parameters and all that is known."""

    def handler(order: Order, stock: Stock): ...

    text = refusal(handler)
    for word in words:
        assert word in text


def test_a_type_that_nothing_fills_is_refused() -> None:
    """A service in the place of the payload is answered with what could stand there."""

    class Mailer: ...

    def handler(mailer: Mailer): ...

    text = refusal(handler)
    assert "'mailer: " in text
    assert "pydantic" in text
    assert "Token" in text


def test_variable_arguments_are_refused() -> None:
    """*args and **kwargs could be anything."""

    def positional(order: Order, *rest): ...

    def named(order: Order, **rest): ...

    assert "*rest" in refusal(positional)
    assert "**rest" in refusal(named)


def test_what_is_no_handler_is_refused() -> None:
    """Values, classes and generators cannot be handlers; the text says what to write."""

    def generator(order: Order):
        yield order

    async def stream(order: Order):
        yield order

    assert "cannot be called" in refusal("award")
    assert "class" in refusal(Order)
    assert "return instead of yield" in refusal(generator)
    assert "return instead of yield" in refusal(stream)


def test_a_session_with_external_effects_is_refused() -> None:
    """Nothing would commit it."""

    def handler(order: Order, session: Session): ...

    text = refusal(handler, Effects.EXTERNAL)
    assert "'session'" in text
    assert "effects: database" in text


@pytest.mark.parametrize(
    "annotation", [type("AsyncSession", (), {}), type("MySession", (Session,), {}), Session | None]
)
def test_another_session_is_refused(annotation: Any) -> None:
    """Only sqlalchemy.orm.Session can be handed over."""

    def handler(order: Order, session): ...

    handler.__annotations__["session"] = annotation
    assert "write sqlalchemy.orm.Session" in refusal(handler)


@pytest.mark.parametrize("effects", Effects)
def test_an_async_handler_returns_its_coroutine(effects: Effects) -> None:
    """The caller awaits it, with effects in the database and outside."""

    async def handler(order: Order):
        return order.id

    made = bound(handler, effects)
    assert made.is_async
    assert asyncio.run(made.call(run_of(item(BODY)), item(BODY))) == "o-1"


def test_async_is_seen_through_partials_methods_and_objects() -> None:
    """Whatever form a coroutine function takes."""

    class Shop:
        async def award(self, order: Order): ...

        async def __call__(self, order: Order): ...

    assert bound(Shop().award, Effects.EXTERNAL).is_async
    assert bound(Shop(), Effects.EXTERNAL).is_async
    assert bound(functools.partial(Shop().award), Effects.EXTERNAL).is_async


def test_an_async_handler_behind_a_sync_decorator_cannot_pass_for_having_run() -> None:
    """A coroutine that no one awaits is an error, not a success."""

    async def hidden(order: Order): ...

    @functools.wraps(hidden)
    def wrapper(*args):
        return hidden(*args)

    with pytest.raises(HandlerFault, match="never awaited"):
        call(wrapper)


def test_bytes_with_a_json_topic_are_refused_at_start() -> None:
    """Every message would fail; the topic's format says so before any does."""

    def handler(body: bytes): ...

    assert "format: bytes" in refusal(handler, body_format="json")
    bound(handler, body_format="bytes")


def test_the_bound_handler_says_what_it_wants() -> None:
    """The engine reads name, session, async and batch from it."""

    def handler(order: Order, session: Session): ...

    made = bound(handler)
    assert (made.name, made.wants_session, made.is_async, made.is_batch) == ("shop:award", True, False, False)
    assert not bound(lambda order: None).wants_session


@pytest.mark.parametrize(
    "lazy",
    [lambda: (number for number in range(3)), lambda: map(str, range(3)), Future],
    ids=["generator", "map", "future"],
)
def test_work_that_is_not_done_yet_is_no_result(lazy: Any) -> None:
    """A handler whose decorator returns a generator or a future has done nothing yet, which is an error."""

    def handler(order: Order) -> Any:
        del order
        return lazy()

    with pytest.raises(HandlerFault, match=r"so it did nothing|work nothing waits for"):
        call(handler)
