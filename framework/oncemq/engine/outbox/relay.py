"""Relays the outbox to the brokers: right after the commit, and later what dead processes or outages left behind."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Self
from uuid import uuid4

from sqlalchemy import Connection, Engine

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.contracts.unit import Outgoing, Run
from oncemq.contracts.verdict import PROCEED
from oncemq.engine.outbox.broker_sender import BrokerSender, DueIn
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.plan import AppPlan
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.ledger.records.exclusive_units import enter_exclusive
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.observers import Observers

_TAKE_OVER = 200
_RELEASE = 500
LOOK_FOR_DUE = timedelta(seconds=1)
"""The pause between two looks for messages that are due: half of it is their usual delay."""
_PACE = timedelta(seconds=5)
"""The pause of all processes but one between two looks: their number must not multiply the statements of an idle app."""
_ENOUGH_WAITS = 1000


class Relay:
    """Stores messages published by handlers, and sends them after the commit.

    Args:
        app: the app's name.
        engine: the database with the outbox.
        publishing: sends to the brokers.
        clock: the source of time.
        observers: notified of messages that a broker refused.
        redact: masks secrets in a broker's errors, which are stored.
        window: how long rows belong to the process that stored or took them.
        point: called with the name of each kill point reached.
    """

    def __init__(
        self,
        app: str,
        engine: Engine,
        publishing: Publishing,
        clock: Clock,
        observers: Observers,
        redact: Callable[[str], str],
        window: timedelta,
        point: Callable[[str], None],
    ) -> None:
        self._app = app
        self._engine = engine
        self._publishing = publishing
        self._clock = clock
        self._observers = observers
        self._redact = redact
        self._window = window
        self._point = point
        self._owner = uuid4().hex
        self._posts: dict[str, BrokerSender] = {}
        self._threaded = True
        self._stopped = False

    @classmethod
    def of(
        cls, plan: AppPlan, publishing: Publishing, observers: Observers, point: Callable[[str], None]
    ) -> tuple[Self, ...]:
        """Return the relays of an app, one for each of its databases."""
        redact = plan.consumers[0].redact if plan.consumers else str
        return tuple(
            cls(plan.name, engine, publishing, plan.clock, observers, redact, plan.outbox_window, point)
            for engine in plan.engines
        )

    def store(self, run: Run) -> None:
        """Store the messages of a run's applied items in its transaction; afterwards publishing is refused."""
        outgoing, run.outgoing = run.outgoing, None
        if outgoing:
            run.published = outgoing
            run.notes[self] = self.keep(run.connection, run)

    def keep(self, connection: Connection, run: Run) -> Sequence[Stored]:
        """Store the messages of a run's applied items in this transaction; returns the rows for `send`."""
        outgoing = [sent for sent in run.published if _counts(sent)]
        return self._keep(connection, run.consumer, outgoing, self._clock.now()) if outgoing else ()

    def postpone(self, consumer: str, outgoing: Sequence[Outgoing]) -> None:
        """Store messages for later, and delete cancelled ones, in a transaction of their own."""
        with self._engine.begin() as connection:
            self._keep(connection, consumer, outgoing, self._clock.now())

    def add(
        self,
        connection: Connection,
        scope: str,
        messages: Sequence[tuple[str, OutgoingMessage]],
        *,
        owned: bool = True,
    ) -> list[Stored]:
        """Store messages in an open transaction; returns the rows, for `send` after the commit.

        Args:
            connection: the transaction's.
            scope: the ledger scope of the publisher.
            messages: topic and message.
            owned: this process sends them; otherwise any relay that finds them.
        """
        outgoing = [Outgoing(topic, message, None) for topic, message in messages]
        return self._keep(connection, scope, outgoing, self._clock.now(), owned=owned)

    def cancel(self, connection: Connection, topic: str, wanted: OutgoingMessage) -> int:
        """Delete, in an open transaction, messages that were published for later; returns how many."""
        chosen = delayed.chosen_by(Outgoing(topic, wanted, None, cancels=True))
        return delayed.cancel(connection, self._app, chosen)

    def committed(self, run: Run) -> None:
        """Send the rows stored by the run, in a separate thread."""
        stored = run.notes.get(self)
        if stored:
            self.send(stored)

    def send(self, stored: Sequence[Stored]) -> None:
        """Send rows of this process, in a separate thread; rows that were rolled back are not found and skipped."""
        if not self._stopped:
            self._put(stored)

    def step(self) -> bool:
        """Send what waits, in this thread instead of separate ones from now on; returns whether anything did."""
        self._threaded = False
        worked = [post.step() for post in self._posts.values()]
        return any(worked)

    def task(self, *, every: timedelta) -> UpkeepTask:
        """Return the background task: sending rows that no process owns any more."""
        # A lease decides only who looks often. Claims in the rows decide who sends, so a dead process's rows wait for one time-out.
        return UpkeepTask(
            f"relay {self._app}",
            every,
            self._take_over,
            everywhere=True,
            pace=max(every, _PACE),
            wanted=lambda dialect: outbox.due_exists(dialect, self._app, self._clock.now()),
        )

    def due_task(self, *, every: timedelta) -> UpkeepTask:
        """Return the background task: sending messages that were published for later, when they are due."""
        # A lease decides only who looks often: else the messages due would wait for the lease of a process that died.
        return UpkeepTask(
            f"send delayed {self._app}",
            every,
            self._release,
            everywhere=True,
            pace=max(every, _PACE),
            wanted=lambda dialect: delayed.due_exists(dialect, self._app, self._clock.now()),
        )

    def waiting(self) -> int:
        """Return the number of messages that this process is about to send."""
        return sum(post.waiting() for post in list(self._posts.values()))

    def unsent(self) -> int:
        """Return the number of the app's outbox rows and due messages that are still to be sent, by any process."""
        with self._engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            due = delayed.waiting(connection, self._app, self._clock.now()).due
            return outbox.depth(connection, self._app).messages + due

    def stop(self, *, grace: timedelta) -> None:
        """Send the rows that this process still has, within `grace`; the rest stays in the outbox."""
        self._stopped = True
        until = self._clock.monotonic() + grace.total_seconds()
        posts = list(self._posts.values())
        for post in posts:
            post.finish()
        for post in posts:
            post.join(max(0.0, until - self._clock.monotonic()))

    def _take_over(self, engine: Engine) -> bool:
        if self._stopped:
            return False
        now = self._clock.now()
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            if not outbox.any_due(connection, self._app, now):
                return False
        claim = Claim(self._app, self._owner, now + self._window)
        with engine.begin() as connection:
            taken = outbox.take_over(connection, claim, now, _TAKE_OVER, self._busy())
        self._put(taken)
        return len(taken) == _TAKE_OVER

    def _release(self, engine: Engine) -> bool:
        """Give due messages to the senders, one process of the app at a time: so a key's messages keep their order."""
        if self._stopped:
            return False
        now = self._clock.now()
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            if not delayed.any_due(connection, self._app, now):
                return False
        with engine.begin() as connection:
            enter_exclusive(connection, f"{self._app} delayed")
            now = self._clock.now()
            claim = Claim(self._app, self._owner, now + self._window)
            released = delayed.release(connection, claim, now, _RELEASE, self._busy())
        self._point("delayed-released")
        self._put(released)
        return len(released) == _RELEASE

    def _keep(
        self,
        connection: Connection,
        scope: str,
        outgoing: Sequence[Outgoing],
        now: datetime,
        *,
        owned: bool = True,
    ) -> list[Stored]:
        claim = Claim(self._app, self._owner, now + self._window) if owned else Claim(self._app, "", now)
        return delayed.keep(connection, claim, scope, outgoing, now)

    def _busy(self) -> list[str]:
        """Return the topics with enough waiting rows here: an unavailable broker must not delay the others."""
        posts = list(self._posts.items())
        full = [broker for broker, post in posts if post.waiting() >= _ENOUGH_WAITS]
        return [topic for broker in full for topic in self._publishing.topics_of(broker)]

    def _put(self, stored: Sequence[Stored]) -> None:
        by_broker: dict[str | None, list[Stored]] = {}
        for row in stored:
            by_broker.setdefault(self._publishing.broker_of(row.topic), []).append(row)
        for broker, mine in by_broker.items():
            # A topic no longer in the app has no broker; its refusals are reported like all others.
            self._post(broker or "").put(mine)

    def _post(self, broker: str) -> BrokerSender:
        post = self._posts.get(broker)
        if post is None:
            post = BrokerSender(
                broker,
                self._engine,
                Claim(self._app, self._owner, self._clock.now()),
                self._publishing.publish,
                self._clock,
                self._observers,
                self._redact,
                DueIn(self._window / 2),
                self._point,
                self._publishing.when_unroutable,
            )
            # Two workers may arrive at the same time: both must get the same sender, and only that one runs.
            winner = self._posts.setdefault(broker, post)
            if winner is post and self._threaded:
                post.start()
            post = winner
        return post


def _counts(sent: Outgoing) -> bool:
    """Whether it may be sent: an item that is not applied publishes nothing."""
    return sent.item is None or sent.item.verdict is PROCEED
