"""Answers of a user's `verify(envelope)` about a message whose effect outside is unknown."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """The effect has happened; the message is a duplicate from now on.

    Args:
        result: what the handler would have returned, as far as known; kept as JSON.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """The effect has not happened and cannot happen any more by itself; the handler runs again."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be found out; the message becomes a dead letter, and a person must look.

    Args:
        reason: a few words for that person.
    """

    reason: str = ""


Answer = Done | NotDone | Unknown
"""A class of these without arguments, as in `return NotDone`, means the same as its instance."""

Verify = Callable[..., Answer | type[Answer] | Awaitable[Answer | type[Answer]]]
"""Asked about a message whose handler was cut off or failed, with its Envelope; plain or `async def`.

A parameter annotated `Publisher` is filled, too: before it answers Done it publishes what the handler would have
published. That is stored with the claim's end; with any other answer nothing of it is sent.

It may raise: an exception says that it cannot be asked now, and costs the message an attempt;
`raise Retry(after=…)` says when to ask again.
"""
