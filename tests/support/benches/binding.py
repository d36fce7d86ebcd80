"""Handlers bound to made-up messages, and the payload types that they ask for."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from oncemq.contracts.checks import Effects
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.errors import ConfigError
from oncemq.handler.binding import BoundHandler, bind
from oncemq.message.envelope import Delivery, Message, make_envelope


class Order(BaseModel):
    """A payload."""

    id: str
    paid: int = Field(gt=0)


@dataclass
class Ride:
    """A payload as a standard dataclass."""

    id: str
    day: date


class Token:
    """Something that a strategy hands over."""


BODY = {"id": "o-1", "paid": 3}


SESSION = Session()


def item(payload: Any) -> Item:
    """Return an item whose decoded body is `payload`."""
    message = Message("orders", json.dumps(payload, default=str).encode())
    return Item(Delivery(message), make_envelope("b", "orders", "g", "k", None, "k", message), payload)


def run_of(*items: Item) -> Run:
    """Return a run with a session."""
    return Run(Unit("app.consumer", [item.delivery for item in items], 0.0), items, None, SESSION)


def bound(function: Any, effects: Effects = Effects.DATABASE, **more: Any) -> BoundHandler:
    """Bind with a token as the only provided type."""
    return bind(
        function,
        name="shop:award",
        provided={Token: lambda _run, one: f"token of {one.key}"},
        effects=effects,
        **more,
    )


def call(function: Any, payload: Any = None, effects: Effects = Effects.DATABASE) -> Any:
    """Bind a handler and call it once."""
    single = item(BODY if payload is None else payload)
    return bound(function, effects).call(run_of(single), single)


def refusal(function: Any, effects: Effects = Effects.DATABASE, **more: Any) -> str:
    """Return the text with which binding is refused."""
    with pytest.raises(ConfigError) as error:
        bound(function, effects, **more)
    text = str(error.value)
    assert text.startswith("handler shop:award: ")
    return text
