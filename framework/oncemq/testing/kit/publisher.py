"""Publisher to an app under test, for handlers and code that have one of their own in production."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.contracts.requests import Answer
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.app_publisher import AppPublisher, NewMessage
from oncemq.errors import Unpublishable


class AnswerInMemory(Future[Answer]):
    """Answer of a request; who waits for it lets the app work, in the same thread.

    Args:
        work: lets the app work until a condition is true, or until so much time of its clock has passed.
        wait: for how long the answer is awaited.
    """

    def __init__(self, work: Callable[[Callable[[], bool], timedelta], None], wait: timedelta) -> None:
        super().__init__()
        self._work = work
        self._wait = wait

    def result(self, timeout: float | None = None) -> Answer:
        """Return the answer; raise TimeoutError if there is none when the time is over."""
        del timeout  # by another clock than the app's
        self._work(self.done, self._wait)
        return super().result(0)


class KitPublisher(AppPublisher):
    """An `AppPublisher` on the brokers of an app under test.

    Args:
        plan: returns the app as it runs now.
        in_memory: its brokers are in memory.
    """

    def __init__(self, plan: Callable[[], AppPlan], *, in_memory: bool) -> None:
        super().__init__(lambda: (_lent(plan, in_memory=in_memory), str))
        self._in_memory = in_memory

    def publish(
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
        session: Session | Connection | None = None,
        priority: int | None = None,
    ) -> str:
        """Publish as in production; in memory not by an outbox, which would need a thread."""
        self._refuse(session, delay, at)
        return super().publish(
            topic,
            body,
            key=key,
            version=version,
            headers=headers,
            message_id=message_id,
            delay=delay,
            at=at,
            session=session,
            priority=priority,
        )

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, session: Session | Connection | None = None
    ) -> list[str]:
        """Publish as in production; in memory not by an outbox, which would need a thread."""
        given = list(messages)
        for each in given:
            later = (each.delay, each.at) if isinstance(each, NewMessage) else ()
            self._refuse(session, *later)
        return super().publish_many(topic, given, session=session)

    @contextmanager
    def transaction(self, topic: str, body: Any, **more: Any) -> Iterator[Session]:
        """Publish as in production; not in memory."""
        self._refuse(topic)
        with super().transaction(topic, body, **more) as session:
            yield session

    def _refuse(self, *asked: object) -> None:
        if self._in_memory and any(each is not None for each in asked):
            raise Unpublishable(
                "the publisher of a test in memory has no outbox: test session=, delay=, at= and transaction with "
                "TestApp(…, real=True), or publish in a handler by oncemq.Publisher"
            )


class _Lent:
    """Adapter that belongs to the app under test, which opens and closes it.

    Args:
        adapter: returns it as it is now: an app that was started again has another one.
        consumed: the app has opened it.
    """

    def __init__(self, adapter: Callable[[], Adapter], *, consumed: bool) -> None:
        self._adapter = adapter
        self._consumed = consumed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter(), name)

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect, unless the app has."""
        if not self._consumed:
            self._adapter().prepare(subscriptions)

    def close(self, *, grace: timedelta) -> None:
        """Leave it open."""


def _lent(plan: Callable[[], AppPlan], *, in_memory: bool) -> AppPlan:
    now = plan()
    consumed = {consumer.broker for consumer in now.consumers}

    def lend(name: str) -> Any:
        return _Lent(lambda: plan().adapters[name], consumed=name in consumed)

    adapters = {name: lend(name) for name in now.adapters}
    if in_memory:
        now = replace(now, engine=None, more_engines=())
    return replace(now, adapters=adapters)
