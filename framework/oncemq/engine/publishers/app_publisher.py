"""Publishes from outside of handlers: a web request, a script, a scheduled job.

Without a session a message is sent at once and confirmed by its broker. With a session of the caller it is stored in the
outbox by the caller's own transaction, and sent if, and only if, that transaction commits.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Self

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from oncemq.contracts.publisher import unknown_topic
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.caller_outbox import CallerOutbox
from oncemq.engine.publishers.requests import Request, checked_wait, refuse_inside, send_request
from oncemq.engine.publishers.transactional_publisher import TransactionalPublisher
from oncemq.errors import BrokerError, PartlyPublished, Unpublishable
from oncemq.ledger import schema
from oncemq.ledger.database import probe
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.outgoing import OutgoingTopic

CHUNK: Final = 5000
"""Messages that `publish_many` hands to the broker's adapter together; each is confirmed."""

_CLOSE_WITHIN: Final = timedelta(seconds=10)

Redact = Callable[[str], str]
Load = Callable[[], tuple[AppPlan, Redact]]
"""Returns the app and the masking of its secrets; called once per process."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """One message for `publish_many`, if a body alone is not enough.

    Args:
        body: anything the topic's format can hold; bytes are sent unchanged.
        key: the broker's business key, for topics with `key: keys[0]`.
        version: sent in the header `version`.
        headers: text to text.
        message_id: your own id instead of a generated one.
        delay: how long from now it is held back: a timedelta, text such as "30m", or seconds.
        at: until when it is held back instead, aware.
        priority: on a topic with `max_priority`: urgent messages, with a higher one, are delivered first.
    """

    body: Any
    key: str | int | None = None
    version: int | None = None
    headers: Mapping[str, str] | None = None
    message_id: str | None = None
    delay: timedelta | str | float | None = None
    at: datetime | None = None
    priority: int | None = None


class AppPublisher:
    """Publishes to the topics of an app: `with oncemq.open_publisher("app.yaml") as publisher:`.

    Thread-safe; one per process is enough. Connections are made on first use and re-established
    automatically. A forked process makes its own. Inside of handlers use `oncemq.Publisher`.

    Args:
        load: returns the app.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._connections: _Connections | None = None
        self._inherited: list[_Connections] = []
        self._closed = False
        os.register_at_fork(after_in_child=partial(_forget_connections, weakref.ref(self)))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Read the app and check its database, if it has one.

        Brokers are connected by the first message; those of RocketMQ now, to answer for processes of the app that
        died in a `transaction`.

        Raises:
            ConfigError: the app cannot work; carries every problem.
            OnceMQError: the database is unreachable, or has no ledger tables.
        """
        self._closed = False
        self._here().open()

    def close(self, grace: timedelta = _CLOSE_WITHIN) -> None:
        """Send what is stored and committed, within `grace`, and disconnect; the rest stays in the outbox."""
        with self._lock:
            connections, self._connections, self._closed = self._connections, None, True
        if connections is not None:
            connections.close(grace)

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
        """Return the message's id once its broker has confirmed it, or, with a session, once it is stored.

        Args:
            topic: the name of a topic below `topics`; it decides the broker.
            body: anything the topic's format can hold; for JSON also models, dataclasses, datetimes. Bytes are sent unchanged.
            key: the broker's business key, for topics with `key: keys[0]`; messages of one key keep their order.
            version: sent in the header `version`.
            headers: text to text.
            message_id: your own id instead of a generated one.
            delay: how long from now the message is held back: a timedelta, text such as "30m", or seconds. It is stored
                in the app's database until then; with `delay_by: broker` its broker keeps it.
            at: until when it is held back instead, aware; a moment that is over means now.
            session: a SQLAlchemy session or connection on the app's database: the message is part of its transaction,
                sent after the commit at least once, by this process or by any worker of the app; never after a rollback.
            priority: on a topic with `max_priority`: urgent messages, with a higher one, are delivered first.

        Raises:
            Unpublishable: no such topic, its consumers could not read the message, nothing can hold it back, or the
                session is not on the app's database.
            BrokerUnavailable: the broker is unreachable, or did not confirm in time: it may have the message.
            BrokerRefused: the broker refused the message.
        """
        new = NewMessage(body, key, version, headers, message_id, delay, at, priority)
        if session is not None:
            return self._here().store(session, topic, [new])[0]
        connections = self._here()
        message = connections.message(topic, new)
        if _waits(message):
            connections.open_outbox().store([(topic, message)])
            return message.message_id or ""
        error = connections.publishing.publish(topic, [message])[0]
        if error is not None:
            raise error
        return message.message_id or ""

    def request(
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

        A consumer of the topic with `reply: true` answers once its effect is committed. Asked again with the same identity,
        the effect happens once, and the answer is the stored one. Of several answers the first counts.

        Args:
            topic: as for `publish`, like everything else; on RabbitMQ.
            body: the request.
            wait: how long all of it may take: a timedelta, text such as "5s", or seconds.
            key: the broker's business key.
            version: sent in the header `version`.
            headers: text to text.
            message_id: your own id instead of a generated one, for topics with `identity: message_id`.

        Raises:
            RequestTimeout: no answer came in time; the request may still take effect.
            RequestFailed: the request has become a dead letter, or its answer is not JSON; says why.
            HandlerFault: a transaction of the framework is open here, such as that of a handler.
            Unpublishable: as `publish`, or the topic's broker carries no answers.
            BrokerUnavailable: as `publish`, or the publisher was closed meanwhile.
            BrokerRefused: the broker refused the message, or the queue for answers.
        """
        refuse_inside()
        return self.begin_request(topic, NewMessage(body, key, version, headers, message_id), wait).result()

    def begin_request(self, topic: str, new: NewMessage, wait: timedelta | str | float) -> Request:
        """Publish a request, and return it once its broker has confirmed it; errors as of `request`."""
        limit, connections = checked_wait(wait), self._here()
        declared, message = connections.declared(topic), connections.message(topic, new)
        carries = connections.plan.adapters[declared.broker].capabilities.requests
        return send_request(declared, message, limit, connections.publishing, carries=carries)

    def cancel(
        self,
        topic: str,
        *,
        key: str | int | None = None,
        message_id: str | None = None,
        session: Session | Connection | None = None,
    ) -> int:
        """Have messages forgotten that were published for later; returns how many.

        What is due already may be on its way: its consumer should look whether it still applies.

        Args:
            topic: the name of a topic below `topics`.
            key: those of this business key.
            message_id: the one with this id, as `publish` returned it.
            session: as for `publish`: if its transaction is rolled back, nothing is forgotten.

        Raises:
            Unpublishable: no such topic, neither key nor id, or its messages are not held back by the outbox.
        """
        connections = self._here()
        wanted = connections.declared(topic).cancellation(key, message_id)
        return connections.open_outbox().cancel(session, topic, wanted)

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, session: Session | Connection | None = None
    ) -> list[str]:
        """Return the ids of many messages for one topic, in order, once all of them are confirmed or stored.

        All of them are checked before the first one is sent. Many are in flight at once; if one is refused,
        later ones of its key may have been sent.

        Args:
            topic: the name of a topic below `topics`.
            messages: bodies, or `oncemq.NewMessage` if a body alone is not enough.
            session: as for `publish`.

        Raises:
            Unpublishable: as `publish`; nothing was sent.
            PartlyPublished: the broker did not confirm all of them; says which, and why.
        """
        connections = self._here()
        news = [entry if isinstance(entry, NewMessage) else NewMessage(entry) for entry in messages]
        if session is not None:
            return connections.store(session, topic, news)
        ready = [connections.message(topic, new) for new in news]
        if later := [(topic, message) for message in ready if _waits(message)]:
            connections.open_outbox().store(later)
        errors: dict[int, BrokerError] = {}
        pending = ((position, message) for position, message in enumerate(ready) if not _waits(message))
        while chunk := list(islice(pending, CHUNK)):
            answers = connections.publishing.publish(topic, [message for _, message in chunk])
            errors |= {
                position: error
                for (position, _), error in zip(chunk, answers, strict=True)
                if error is not None
            }
        if errors:
            raise PartlyPublished(topic, len(ready), errors)
        return [message.message_id or "" for message in ready]

    @contextmanager
    def transaction(self, topic: str, body: Any, **more: Any) -> Iterator[Session]:
        """Provide a session; its commit releases a message that a RocketMQ broker holds meanwhile, or neither happens.

        As `oncemq.TransactionalPublisher.transaction`, with the same arguments and errors. For your own session,
        or on other brokers, use `publish(..., session=session)`.
        """
        with self._here().transactional().transaction(topic, body, **more) as session:
            yield session

    def _here(self) -> "_Connections":
        found = self._connections
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise Unpublishable("the publisher is closed")
            if self._connections is None:
                self._connections = _Connections(*self._load())
            return self._connections

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._connections is not None:
            # Kept, so that no finalizer closes connections that the parent process still uses.
            self._inherited.append(self._connections)
            self._connections.forget()
            self._connections = None


class _Connections:
    """Open resources of one process.

    Args:
        plan: the app.
        redact: masks the app's secrets.
    """

    def __init__(self, plan: AppPlan, redact: Redact) -> None:
        self.plan = plan
        self.publishing = Publishing(plan.adapters, plan.topics, frozenset())
        self.publishing.open()
        self._redact = redact
        self._lock = threading.Lock()
        self._outbox: CallerOutbox | None = None
        self._transactional: TransactionalPublisher | None = None

    def open(self) -> None:
        """Check the database, and connect to brokers that may query the outcome of a transaction."""
        plan = self.plan
        if plan.engine is None:
            return
        self.open_outbox()
        asking = {topic.broker for topic in plan.topics.values()}
        if plan.layout is None and any(plan.adapters[name].capabilities.transactions for name in asking):
            try:
                self.transactional()
            except BrokerError as error:
                logging.getLogger(__name__).warning(
                    "broker unreachable, its checks of open transactions are not answered yet: %s", error
                )

    def message(self, topic: str, new: NewMessage) -> OutgoingMessage:
        """Return the message to send.

        Raises:
            Unpublishable: no such topic, or its consumers could not read the message.
        """
        return self.declared(topic).message(
            new.body,
            key=new.key,
            version=new.version,
            headers=new.headers,
            message_id=new.message_id,
            delay=new.delay,
            at=new.at,
            priority=new.priority,
        )

    def store(self, session: Session | Connection, topic: str, news: Sequence[NewMessage]) -> list[str]:
        """Store messages in the outbox, in the caller's transaction; returns their ids."""
        messages = [(topic, self.message(topic, new)) for new in news]
        self.open_outbox().add(session, messages)
        return [message.message_id or "" for _, message in messages]

    def open_outbox(self) -> CallerOutbox:
        """Return the outbox; the first call checks the app's databases.

        Raises:
            Unpublishable: the app has no database.
            OnceMQError: it is unreachable, or has no ledger tables.
        """
        with self._lock:
            if self._outbox is None:
                if self.plan.engine is None:
                    raise Unpublishable(
                        "publishing in a transaction needs the app's database: write database: and its URL, "
                        "or publish without session="
                    )
                for engine in self.plan.engines:
                    probe.prove(engine)
                    schema.ensure(engine)
                self._outbox = CallerOutbox(self.plan, self.publishing, self._redact)
            return self._outbox

    def transactional(self) -> TransactionalPublisher:
        """Return the holder of messages on brokers of RocketMQ; the first call connects."""
        with self._lock:
            if self._transactional is None:
                transactional = TransactionalPublisher(self.plan)
                transactional.open()
                self._transactional = transactional
            return self._transactional

    def close(self, grace: timedelta) -> None:
        """Send what is stored and committed, and disconnect."""
        if self._outbox is not None:
            self._outbox.close(grace)
        if self._transactional is not None:
            self._transactional.close()
        for name, adapter in self.plan.adapters.items():
            try:
                adapter.close(grace=grace)
            except Exception as error:
                logging.getLogger(__name__).warning("closing broker %s failed: %s", name, error)
        for engine in self.plan.engines:
            engine.dispose()

    def forget(self) -> None:
        """Drop the parent process's resources without closing its connections."""
        for engine in self.plan.engines:
            with suppress(Exception):
                engine.dispose(close=False)

    def declared(self, name: str) -> OutgoingTopic:
        """Return a topic.

        Raises:
            Unpublishable: there is none of this name.
        """
        found = self.plan.topics.get(name)
        if found is None:
            raise Unpublishable(unknown_topic(name, self.plan.topics))
        return found


def _waits(message: OutgoingMessage) -> bool:
    """Return whether the app's database keeps the message until it is due."""
    return message.due_at is not None and not message.timer


def _forget_connections(publisher: "weakref.ref[AppPublisher]") -> None:
    found = publisher()
    if found is not None:
        found._after_fork()
