"""Messages that exist if, and only if, a database transaction outside of handlers commits.

The broker holds the message, the transaction runs and records its commit in a ledger row, then the broker is
notified. If a process dies on the way, the broker asks any process of the app, which answers from the ledger alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Self, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from oncemq.contracts.publisher import unknown_topic
from oncemq.contracts.strategy import UpkeepTask
from oncemq.contracts.transactional_messages import (
    Decision,
    Held,
    HeldMessages,
    TransactionalAdapter,
)
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.base.open_units import inside
from oncemq.engine.plan import AppPlan
from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.engine.transaction.connection_watch import install
from oncemq.errors import ConfigError, Unpublishable
from oncemq.ledger import schema
from oncemq.ledger.database import probe
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import transactions
from oncemq.ledger.messages.transactions import Unsent
from oncemq.message.outgoing import OutgoingTopic
from oncemq.upkeep.runner import Upkeep

KEPT: Final = timedelta(days=7)
"""How long the ledger can answer; longer than any broker asks."""

_TOLD_WITHIN: Final = timedelta(seconds=30)
_LOOK_EVERY: Final = timedelta(seconds=5)
_PURGE_EVERY: Final = timedelta(minutes=10)
_SLOW: Final = 10.0
"""Seconds; after a slower transaction other processes must see again that its own process is notifying the broker."""
_BATCH: Final = 200


class TransactionalPublisher:
    """Publishes together with database transactions: `with publisher.transaction("order.paid", order) as session:`.

    For code outside of handlers; inside of them `oncemq.Publisher` does the same. Thread-safe; one per
    process is enough. While it is open, it also answers for processes of the app that died.

    Args:
        plan: the app.
        point: called with the name of each kill point reached; for tests that kill the process there.

    Raises:
        ConfigError: the app has no database, or a sharded one.
    """

    def __init__(self, plan: AppPlan, *, point: Callable[[str], None] = nothing) -> None:
        self._app, self._topics, self._clock = plan.name, plan.topics, plan.clock
        self._adapters = plan.adapters
        self._engine = _only_database(plan)
        self._point = point
        self._ledger = ""
        self._held: dict[str, HeldMessages] = {}
        self._told: deque[str] = deque()
        tasks = [
            UpkeepTask(f"finish transactions {self._app}", _LOOK_EVERY, self.catch_up, everywhere=True),
            UpkeepTask(f"purge transactions {self._app}", _PURGE_EVERY, self._purge),
        ]
        self._upkeep = Upkeep(self._engine, tasks, self._clock, _failed)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect to the database and to every broker that can hold messages.

        Raises:
            OnceMQError: one of them is unreachable or refuses.
        """
        probe.prove(self._engine)
        schema.ensure(self._engine)
        install(self._engine)
        with self._engine.begin() as connection:
            self._ledger = transactions.ledger_id(connection, self._clock.now())
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        self._upkeep.start()

    def close(self) -> None:
        """Disconnect; a message whose broker was not notified is finished by the next process of the app."""
        self._upkeep.stop()
        for held in self._held.values():
            held.close()
        self._held.clear()
        with _quietly("noting which transactions are finished"):
            self._note_told()
        self._engine.dispose()

    @contextmanager
    def transaction(
        self,
        topic: str,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
    ) -> Iterator[Session]:
        """Provide a session; when the block ends, its transaction commits and consumers get the message, or neither.

        The message is passed first, so it cannot contain values made by the database; use your own ids.
        An exception in the block rolls back. After the commit nothing is raised: an unavailable broker
        is notified later.

        Args:
            topic: the name of a topic below `topics`, on a broker that can hold messages.
            body: as for `Publisher.publish`, like everything else.
            key: the broker's business key.
            version: travels in the header `version`.
            headers: text to text.
            message_id: your own id instead of a generated one.

        Raises:
            Unpublishable: no such topic, its broker cannot hold messages, or no consumer could read this one.
            BrokerError: the broker did not accept the message; the block did not run.
            InfrastructureError: the database is unavailable or too slow; nothing is committed.
        """
        declared = self._declared(topic)
        message = declared.message(body, key=key, version=version, headers=headers, message_id=message_id)
        broker, began = self._broker(declared), self._clock.monotonic()
        held = broker.hold(topic, declared.options, message)
        self._point("message-held")
        try:
            loan = self._begin(held)
            try:
                self._point("transaction-begun")
                with inside(lambda: loan.connection.watch is not None):
                    yield loan.session
                self._point("transaction-worked")
            except BaseException:
                loan.roll_back()
                raise
        except BaseException:
            with _quietly("having a message forgotten"):
                broker.finish(held, commit=False)
            raise
        self._commit(loan, held, began)
        self._point("transaction-committed")
        with _quietly("having a message delivered"):
            broker.finish(held, commit=True)
            self._point("message-released")
            self._told.append(held.id)

    def _connect(self) -> None:
        for broker in sorted({topic.broker for topic in self._topics.values()}):
            adapter = self._adapters[broker]
            if adapter.capabilities.transactions:
                holder = cast("TransactionalAdapter", adapter)
                self._held[broker] = holder.hold_messages(self._ledger, self._answer)

    def _declared(self, name: str) -> OutgoingTopic:
        found = self._topics.get(name)
        if found is None:
            raise Unpublishable(unknown_topic(name, self._topics))
        return found

    def _broker(self, topic: OutgoingTopic) -> HeldMessages:
        if not self._ledger:
            raise Unpublishable("the publisher is not open: use it in a `with` block")
        found = self._held.get(topic.broker)
        if found is None:
            raise Unpublishable(
                f"broker {topic.broker!r} of topic {topic.name!r} has no transactional messages: publish in a handler, "
                "with oncemq.Publisher, or put the topic on rocketmq://"
            )
        return found

    def _begin(self, held: Held) -> CallerTransaction:
        now = self._clock.now()
        unsent = Unsent(held.id, held.topic, held.place)

        def write(connection: Connection) -> None:
            transactions.commit(connection, self._app, unsent, now, now + _TOLD_WITHIN)

        return CallerTransaction(self._engine, write)

    def _commit(self, loan: CallerTransaction, held: Held, began: float) -> None:
        """Commit; if the answer is lost, the ledger shows whether it succeeded."""

        def still_ours(connection: Connection) -> None:
            now = self._clock.now()
            transactions.still_ours(connection, held.id, now + _TOLD_WITHIN)

        slow = self._clock.monotonic() - began > _SLOW
        try:
            loan.finish(still_ours if slow else None)
        except BaseException:
            decision = Decision.UNKNOWN
            with _quietly("asking the ledger about a commit"):
                decision = self.decide(held.id)
            if decision is Decision.COMMIT:
                return
            if decision is Decision.ROLL_BACK:
                with _quietly("having a message forgotten"):
                    self._held_by(held.topic).finish(held, commit=False)
            raise

    def _held_by(self, topic: str) -> HeldMessages:
        return self._broker(self._declared(topic))

    def _answer(self, transaction: str) -> Decision:
        """Answer a broker, which asks again if the answer is lost."""
        decision = self.decide(transaction)
        if decision is Decision.COMMIT:
            self._told.append(transaction)
        return decision

    def decide(self, transaction: str) -> Decision:
        """Return the outcome of a transaction; one that has not committed so far cannot commit any more."""
        try:
            with self._engine.begin() as connection:
                committed = transactions.decide(connection, self._app, transaction, self._clock.now())
        except Exception:
            # It is still open and locks its row, or the database is unavailable: the broker asks again.
            logging.getLogger(__name__).debug("transaction outcome is not known yet", exc_info=True)
            return Decision.UNKNOWN
        return Decision.COMMIT if committed else Decision.ROLL_BACK

    def catch_up(self, engine: Engine) -> bool:
        """Record finished messages, and finish those that others left; returns whether there is more."""
        self._note_told()
        now = self._clock.now()
        if not self._any_due(engine):
            return False
        with engine.begin() as connection:
            taken = transactions.take_over(connection, self._app, now, now + _TOLD_WITHIN, _BATCH)
        for message in taken:
            with _quietly("having a message delivered"):
                held = Held(message.id, message.topic, message.place)
                self._held_by(message.topic).finish(held, commit=True, again=True)
                self._told.append(message.id)
        self._note_told()
        return len(taken) == _BATCH

    def _purge(self, engine: Engine) -> bool:
        with engine.begin() as connection:
            before = self._clock.now() - KEPT
            return transactions.purge(connection, self._app, before, _BATCH) == _BATCH

    def _any_due(self, engine: Engine) -> bool:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            return transactions.any_due(connection, self._app, self._clock.now())

    def _note_told(self) -> None:
        told = [self._told.popleft() for _ in range(len(self._told))]
        for at in range(0, len(told), _BATCH):
            try:
                with self._engine.begin() as connection:
                    transactions.sent(connection, told[at : at + _BATCH])
            except BaseException:
                self._told.extend(told[at:])
                raise


def _only_database(plan: AppPlan) -> Engine:
    if plan.engine is None:
        raise ConfigError(["a publisher with transactions needs a database – write database: and its URL"])
    if plan.more_engines:
        raise ConfigError(
            [
                "a publisher with transactions cannot use a sharded database – publish in a handler, with oncemq.Publisher"
            ]
        )
    return plan.engine


@contextmanager
def _quietly(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _failed(doing, error)


def _failed(doing: str, error: BaseException) -> None:
    logging.getLogger(__name__).warning("%s failed and is tried again: %s", doing, error)
