"""Publisher of `oncemq.engine.publishers.app_publisher` for code that runs on an event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from oncemq.engine.publishers.app_publisher import AppPublisher, Load, NewMessage
from oncemq.engine.publishers.requests import refuse_inside

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

Answer = TypeVar("Answer")

_THREADS: Final = 16
"""The most messages that wait for their broker at the same time; further calls wait for a thread."""


class AsyncAppPublisher:
    """Publishes from coroutines: `async with oncemq.open_async_publisher("app.yaml") as publisher:`.

    In FastAPI: `FastAPI(lifespan=publisher.lifespan)`, and `Depends(publisher)` where a route publishes.

    Args:
        load: returns the app.
    """

    def __init__(self, load: Load) -> None:
        self._publisher = AppPublisher(load)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oncemq-publish")

    async def __aenter__(self) -> Self:
        await self._in_thread(self._publisher.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __call__(self) -> Self:
        """Return the publisher, for frameworks that inject the result of a dependency."""
        return self

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Keep the publisher open while a Starlette or FastAPI application runs."""
        async with self:
            yield

    async def close(self) -> None:
        """Send what is stored and committed, and disconnect."""
        await self._in_thread(self._publisher.close)

    async def publish(
        self,
        topic: str,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
        delay: timedelta | str | float | None = None,
        at: datetime | None = None,
        session: "AsyncSession | AsyncConnection | None" = None,
        priority: int | None = None,
    ) -> str:
        """Return the message's id once its broker has confirmed it, or, with a session, once it is stored.

        As `AppPublisher.publish`, with the same errors; `session` is an `AsyncSession` or `AsyncConnection`.
        """
        given: dict[str, Any] = {"key": key, "version": version, "headers": headers, "message_id": message_id}
        call = partial(self._publisher.publish, topic, body, **given, delay=delay, at=at, priority=priority)
        if session is None:
            return await self._in_thread(call)
        await self._in_thread(self._publisher.open)
        return str(await session.run_sync(lambda sync: call(session=sync)))

    async def request(
        self,
        topic: str,
        body: Any,
        *,
        wait: timedelta | str | float,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Publish a request, wait for its answer, and return what the answer's JSON says.

        As `AppPublisher.request`, with the same errors; no thread waits, so any number of them may wait together.
        """
        refuse_inside()
        new = NewMessage(body, key, version, headers, message_id)
        asked = await self._in_thread(partial(self._publisher.begin_request, topic, new, wait))
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(asked.answer), asked.left)
        except TimeoutError:
            raise asked.timeout() from None
        return asked.read(found)

    async def cancel(
        self,
        topic: str,
        *,
        key: str | int | None = None,
        message_id: str | None = None,
        session: "AsyncSession | AsyncConnection | None" = None,
    ) -> int:
        """Have messages forgotten that were published for later, as `AppPublisher.cancel`; returns how many."""
        call = partial(self._publisher.cancel, topic, key=key, message_id=message_id)
        if session is None:
            return await self._in_thread(call)
        await self._in_thread(self._publisher.open)
        return int(await session.run_sync(lambda sync: call(session=sync)))

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any | NewMessage],
        *,
        session: "AsyncSession | AsyncConnection | None" = None,
    ) -> list[str]:
        """Return the ids of many messages for one topic, as `AppPublisher.publish_many`."""
        call = partial(self._publisher.publish_many, topic, list(messages))
        if session is None:
            return await self._in_thread(call)
        await self._in_thread(self._publisher.open)
        return list(await session.run_sync(lambda sync: call(session=sync)))

    async def _in_thread(self, call: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
