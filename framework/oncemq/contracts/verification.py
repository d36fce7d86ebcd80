"""Answers of a user's `verify(envelope)` about a message whose external effect is unknown."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """The effect has happened; the message is a duplicate from then on.

    Args:
        result: the value the handler would have returned, as far as known; kept as JSON.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """The effect has not happened and cannot happen any more; the handler runs again."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be determined; the message becomes a dead letter, and a person must examine it.

    Args:
        reason: a few words for that person.
    """

    reason: str = ""


Answer = Done | NotDone | Unknown
"""A class of these without arguments, as in `return NotDone`, means the same as an instance."""

Verify = Callable[..., Answer | type[Answer] | Awaitable[Answer | type[Answer]]]
"""Called for a message whose handler was interrupted or failed, with its Envelope; plain or `async def`.

A parameter annotated `Publisher` is filled, too: before returning Done it publishes what the handler would have
published. This is stored with the end of the claim; with any other answer nothing is sent.

It may raise: an exception means that no answer is available now, and counts as an attempt;
`raise Retry(after=…)` sets when to ask again.
"""
