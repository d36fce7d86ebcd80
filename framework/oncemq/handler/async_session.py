"""Gives async handlers an AsyncSession over the session of their call: what that session refuses, this one refuses too.

Each of its methods runs the session's own method in a greenlet, whose statements are awaited. So the observations on the session and
on its connection, and the insert of many messages' objects with one statement, are the same as for handlers that are functions.
It needs greenlet: only apps with such a handler import it.
"""

from types import TracebackType
from typing import Self

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq.contracts.unit import Run


class UnitAsyncSession(AsyncSession):
    """An AsyncSession for one call of a handler, on the unit's connection.

    Args:
        session: the session of the call.
    """

    def __init__(self, session: Session) -> None:
        # Not the base class's: it would create a session.
        self.sync_session = self._proxied = self._assign_proxied(session)

    async def __aenter__(self) -> Self:
        """Return the session itself, which is open already."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the session open until the handler returns."""


def async_session_of(run: Run) -> AsyncSession:
    """Return an AsyncSession over the session of the handler call that `run` is in."""
    return UnitAsyncSession(run.session)
