"""Asking the user's `verify` about one message, and understanding whatever comes back."""

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from oncemq.message.envelope import Envelope
from oncemq.verification import Answer, Done, NotDone, Unknown, Verify


@dataclass(frozen=True, slots=True)
class Unanswered:
    """`verify` could not be asked, or gave an answer that means nothing."""

    error: Exception


class Asker:
    """Asks about messages.

    Args:
        verify: the user's function; None: nobody can say.
    """

    def __init__(self, verify: Verify | None) -> None:
        self._verify = verify

    @property
    def can_ask(self) -> bool:
        """Whether there is a `verify`."""
        return self._verify is not None

    def ask(self, envelope: Envelope) -> Answer | Unanswered:
        """Return what is known about the message's effect; never raises an Exception."""
        if self._verify is None:
            return Unknown("there is no `verify` to ask")
        try:
            answer: Any = self._verify(envelope)
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


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
