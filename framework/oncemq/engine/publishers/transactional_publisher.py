"""Messages that exist if, and only if, a database transaction outside of handlers commits.

The broker holds the message, the transaction runs and says in a row of the ledger that it is committed, the broker is
told. Whoever dies on the way: the broker asks any process of the app, and the ledger alone answers.
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
from oncemq.engine.plan import AppPlan
from oncemq.engine.transaction.connection_watch import install
from oncemq.engine.transaction.session_loan import SessionLoan
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
"""Seconds; after a slower transaction others must be told anew that its own process is telling the broker."""
_BATCH: Final = 200


class TransactionalPublisher:
    """Publishes together with database transactions: `with publisher.transaction("order.paid", order) as session:`.

    For code outside of handlers; inside of them `oncemq.Publisher` does the same. Safe for all threads; one for each
    process is enough. As long as it is open, it also answers for processes of the app that died.

    Args:
        plan: the app.
        point: told by name how far a transaction has come; for tests that kill the process there.

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
            OnceMQError: one of them cannot be reached, or refuses us.
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
        """Disconnect; a message whose broker has not been told is finished by whoever opens the app next."""
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
        """Lend a session; when the block ends, its transaction commits and consumers get the message, or neither.

        The message is given first, so it can hold nothing that the database makes; give ids of your own.
        An exception in the block rolls back. After the commit nothing is raised any more: a broker that is away then
        is told later.

        Args:
            topic: the name of a topic below `topics`, on a broker that can hold messages.
            body: as for `Publisher.publish`, like everything else.
            key: the broker's business key.
            version: travels in the header `version`.
            headers: text to text.
            message_id: an id of your own instead of a new one.

        Raises:
            Unpublishable: there is no such topic, its broker cannot hold messages, or nobody could read this one.
            BrokerError: the broker does not hold the message; the block did not run.
            InfrastructureError: the database is away, or too slow; nothing is committed.
        """
        declared = self._declared(topic)
        message = declared.message(body, key=key, version=version, headers=headers, message_id=message_id)
        broker, began = self._broker(declared), self._clock.monotonic()
        held = broker.hold(topic, declared.options, message)
        self._point("message-held")
        try:
            lent = self._begin(held)
            try:
                self._point("transaction-begun")
                yield lent.session
                self._point("transaction-worked")
            except BaseException:
                lent.roll_back()
                raise
        except BaseException:
            with _quietly("having a message forgotten"):
                broker.finish(held, commit=False)
            raise
        self._commit(lent, held, began)
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

    def _begin(self, held: Held) -> SessionLoan:
        now = self._clock.now()
        unsent = Unsent(held.id, held.topic, held.place)

        def write(connection: Connection) -> None:
            transactions.commit(connection, self._app, unsent, now, now + _TOLD_WITHIN)

        return SessionLoan(self._engine, write)

    def _commit(self, lent: SessionLoan, held: Held, began: float) -> None:
        """Commit; where nobody knows whether that succeeded, the ledger does."""

        def still_ours(connection: Connection) -> None:
            now = self._clock.now()
            transactions.still_ours(connection, held.id, now + _TOLD_WITHIN)

        slow = self._clock.monotonic() - began > _SLOW
        try:
            lent.finish(still_ours if slow else None)
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
        """Answer a broker, which asks again should the answer be lost."""
        decision = self.decide(transaction)
        if decision is Decision.COMMIT:
            self._told.append(transaction)
        return decision

    def decide(self, transaction: str) -> Decision:
        """Return what became of a transaction; one that has not committed so far cannot any more."""
        try:
            with self._engine.begin() as connection:
                committed = transactions.decide(connection, self._app, transaction, self._clock.now())
        except Exception:
            # It is still open and holds its row, or the database is away: the broker asks again.
            logging.getLogger(__name__).debug("a transaction is not decided yet", exc_info=True)
            return Decision.UNKNOWN
        return Decision.COMMIT if committed else Decision.ROLL_BACK

    def catch_up(self, engine: Engine) -> bool:
        """Note what is finished, and finish what others left; returns whether there is more."""
        self._note_told()
        now = self._clock.now()
        if not self._any_due(engine):
            return False
        with engine.begin() as connection:
            taken = transactions.take_over(connection, self._app, now, now + _TOLD_WITHIN, _BATCH)
        for one in taken:
            with _quietly("having a message delivered"):
                held = Held(one.id, one.topic, one.place)
                self._held_by(one.topic).finish(held, commit=True, again=True)
                self._told.append(one.id)
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
