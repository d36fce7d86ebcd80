"""Relays the outbox to the brokers: right after the commit, and later what dead processes or outages left behind."""

from collections.abc import Callable, Sequence
from datetime import timedelta
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
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.observers import Observers

_TAKE_OVER = 200
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
        messages = [(sent.topic, sent.message) for sent in run.published if _counts(sent)]
        return self.add(connection, run.consumer, messages) if messages else ()

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
        now = self._clock.now()
        claim = Claim(self._app, self._owner, now + self._window) if owned else Claim(self._app, "", now)
        return outbox.add(connection, claim, scope, messages, now)

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
        # Without a lease: claims in the rows decide, so a dead process's rows wait for one time-out only.
        return UpkeepTask(f"relay {self._app}", every, self._take_over, everywhere=True)

    def waiting(self) -> int:
        """Return the number of messages that this process is about to send."""
        return sum(post.waiting() for post in list(self._posts.values()))

    def unsent(self) -> int:
        """Return the number of the app's outbox rows that are still to be sent, by any process."""
        with self._engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            return outbox.depth(connection, self._app).messages

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
