"""Calls the user's `verify` for one message, and checks its answer."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from oncemq.contracts.publisher import Collected, Publisher, Publishers
from oncemq.contracts.unit import Outgoing
from oncemq.contracts.verification import Answer, Done, NotDone, Unknown, Verify
from oncemq.message.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Unanswered:
    """`verify` could not be called, or returned an invalid answer."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Asked:
    """Answer of `verify`, and the messages it published; without Done they are discarded."""

    answer: Answer | Unanswered
    published: Sequence[Outgoing] = ()


class Asker:
    """Calls `verify` for messages.

    Args:
        verify: the user's function; None if not given.
        publishers: make the publisher that `verify` may ask for; None where nothing can be published.
        silent: `verify` never returns Done, so its answers lose no published message.
    """

    def __init__(
        self, verify: Verify | None, publishers: Publishers | None = None, *, silent: bool = False
    ) -> None:
        self._verify: Callable[..., Any] | None = verify
        self._publishers = publishers
        self._parameter = _publisher_parameter(verify) if verify is not None else None
        self._silent = silent

    @property
    def can_publish(self) -> bool:
        """Whether `verify` publishes the handler's messages, or never returns Done."""
        return self._silent or self._parameter is not None

    @property
    def can_ask(self) -> bool:
        """Whether there is a `verify`."""
        return self._verify is not None

    def ask(self, envelope: Envelope) -> Asked:
        """Return the known outcome of the message; never raises an Exception."""
        if self._verify is None:
            return Asked(Unknown("there is no `verify` to ask"))
        collected, more = Collected(), {}
        if self._parameter is not None:
            if self._publishers is None:
                return Asked(Unanswered(TypeError("verify asks for a Publisher, and there is none here")))
            more = {self._parameter: self._publishers.of_function(collected)}
        answer = self._answer(self._verify, envelope, more)
        published = collected.end()
        return Asked(answer, published if isinstance(answer, Done) else ())

    def _answer(
        self, verify: Callable[..., Any], envelope: Envelope, more: Mapping[str, Any]
    ) -> Answer | Unanswered:
        try:
            answer: Any = verify(envelope, **more)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
        except Exception as error:
            return Unanswered(error)
        if isinstance(answer, type) and issubclass(answer, Done | NotDone | Unknown):
            return answer()
        if isinstance(answer, Done | NotDone | Unknown):
            return answer
        return Unanswered(
            TypeError(f"verify returned {answer!r}; it must return Done(result), NotDone or Unknown")
        )


def _publisher_parameter(verify: Callable[..., Any]) -> str | None:
    """Return the name of the parameter annotated as a Publisher."""
    try:
        hints = get_type_hints(inspect.unwrap(verify) if not isinstance(verify, partial) else verify.func)
    except Exception:
        hints = dict(getattr(verify, "__annotations__", {}))
    return next((name for name, hint in hints.items() if hint is Publisher and name != "return"), None)


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
