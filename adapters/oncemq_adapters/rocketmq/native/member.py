"""One member of one group: a process with librocketmq as long as the brokers are there, a fresh one after each outage.

librocketmq says nothing about lost connections and burns a core in a long outage. So connections of our own watch the
brokers; when one is lost, the process is killed, and what it held is void and delivered again.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import structlog

from oncemq.common.private_files import private_folder
from oncemq.contracts.adapter import ConsumerHealth
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.native.crash_bypass import PythonSession, heads_of
from oncemq_adapters.rocketmq.native.groups import members, register
from oncemq_adapters.rocketmq.native.inbox import Held, Inbox
from oncemq_adapters.rocketmq.native.message_reader import WholeMessages
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq.native.session import Session, inbox_of
from oncemq_adapters.rocketmq.remoting.withheld_brokers import withheld_brokers
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Routes
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.properties import TAGS
from oncemq_adapters.rocketmq_client.protocol import (
    ANSWER_WITHIN,
    Connection,
    StoredMessage,
    producer_heartbeat_body,
)

Resend = Callable[[Queue, str, Sequence[StoredMessage]], Sequence[StoredMessage]]

CRASHES = 2
"""Crashes of the library in a row, after which the messages that may cause them are searched for."""

CRASHES_UNEXPLAINED = 5
"""Crashes in a row, after which the next messages of every queue are handled without it, whatever they are."""

STEADY_AFTER = 60.0
"""Seconds; a process that lived for so long did not crash on the messages at its start."""

JOIN_WITHIN = 60.0
LOOK_EVERY = 5.0
HEARD_WITHIN = 1.0
_LONGEST_PAUSE = 2.0
_ANSWERS, _BETWEEN_ANSWERS = 5, 0.02


def log_folder() -> Path:
    """Return where librocketmq writes its logs: its own place would be the user's home.

    Raises:
        BrokerRefused: another user has taken its name.
    """
    folder = Path(tempfile.gettempdir()) / f"oncemq-librocketmq-{os.getuid()}"
    try:
        return private_folder(folder)
    except OSError as error:
        raise BrokerRefused(
            f"the folder {folder} for librocketmq's logs cannot be used: {error.strerror} – remove it, or set TMPDIR"
        ) from error


class LibraryCrashed(BrokerUnavailable):
    """The process with librocketmq died while the brokers were there."""


class Member:
    """Consumes for one group.

    Args:
        address: how to connect.
        group: by its real name.
        topics: what to subscribe to.
        inboxes: whom each topic's messages are for, by its real name.
        library: where librocketmq is.
        threads: of the library.
        resend: publishes messages to the group's retries, and returns those that are confirmed.
    """

    def __init__(
        self,
        address: Address,
        group: str,
        topics: Sequence[TopicOptions],
        inboxes: Mapping[str, Inbox],
        library: str,
        threads: int,
        resend: Resend,
    ) -> None:
        self.inboxes = list(inboxes.values())
        self._address = address
        self._group = group
        self._topics = topics
        self._by_topic = inboxes
        self._library = library
        self._threads = threads
        self._resend = resend
        self._instance = f"oncemq-{os.getpid()}-{os.urandom(4).hex()}"
        self._routes = Routes(address)
        self._brokers = withheld_brokers(
            address, self._routes, self._hello, on_close=lambda _: self._changed.set()
        )
        self._progress = Progress(group)
        self._names: set[str] = set()
        self._places: dict[str, tuple[Place, ...]] = {}
        self._generation = 0
        self._listed_twice = 0
        self._crashes = 0
        self._changed = Event()
        self._joined = Event()
        self._closed = False
        self._trouble = "it is not connected yet"
        self._thread = Thread(target=self._run, name="oncemq-rocketmq-native", daemon=True)

    def start(self) -> None:
        """Join the group; returns when a broker lists us, or messages of which the library crashes are delivered.

        Raises:
            BrokerUnavailable: that did not happen in time.
        """
        self._thread.start()
        if not self._joined.wait(JOIN_WITHIN):
            raise BrokerUnavailable(
                f"RocketMQ has not admitted this member to group {self._group!r}: {self._trouble}"
            )

    def health(self) -> Sequence[ConsumerHealth]:
        """Return a row for each consumer."""
        trouble = self._trouble
        return [
            ConsumerHealth(inbox.consumer, subscribed=not trouble, detail=trouble) for inbox in self.inboxes
        ]

    def leave_if_idle(self) -> None:
        """Leave the group until a consumer resumes, if nothing is delivered here: others may get our messages."""
        if self._idle():
            self._changed.set()

    def resume(self, consumer: str) -> None:
        """Deliver to a consumer again."""
        for inbox in self.inboxes:
            if inbox.consumer == consumer:
                inbox.resume()
        self._changed.set()

    def close(self) -> None:
        """Leave for good; settled messages stay settled, the rest is redelivered."""
        self._closed = True
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._brokers.close()
        self._routes.close()

    def _idle(self) -> bool:
        return all(inbox.paused and not inbox.out for inbox in self.inboxes)

    def _run(self) -> None:
        pause = 0.1
        while not self._closed:
            self._changed.clear()
            try:
                self._live()
                pause = 0.1
            except LibraryCrashed as error:
                self._trouble = str(error)
                self._changed.wait(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                if self._crashes >= CRASHES and self._pass_heads():
                    pause = 0.1
            except FAILURES as error:
                self._trouble = str(error)
                self._changed.wait(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"
                structlog.get_logger("oncemq").exception("a RocketMQ member failed", group=self._group)
                self._changed.wait(_LONGEST_PAUSE)

    def _live(self) -> None:
        """Consume until something changes."""
        names = self._connect()
        self._progress.commit(self._brokers)
        self._generation += 1
        whole = WholeMessages(self._routes, self._brokers)
        tags = {topic.name: topic.tags for topic in self._topics}
        session = Session(
            self._generation, self._group, self._by_topic, whole, self._progress, tags, self._changed.set
        )
        begun: float | None = None
        try:
            session.start(self._order())
            begun = time.monotonic()
            self._wait_until_listed(session, names)
            self._trouble = ""
            self._joined.set()
            self._watch(session, names)
        finally:
            there = names <= self._brokers.alive().keys()
            crashed = begun is not None and there and not session.running and not self._closed
            self._trouble = self._trouble or "the connection to RocketMQ was lost"
            self._end(session)
            if crashed:
                raise self._crash(session, time.monotonic() - (begun or 0.0))

    def _crash(self, session: Session, lived: float) -> "LibraryCrashed":
        self._crashes = self._crashes + 1 if lived < STEADY_AFTER else 1
        error = LibraryCrashed(
            f"the process with librocketmq died ({session.process_end}), {self._crashes} times in a row"
        )
        structlog.get_logger("oncemq").error(
            "librocketmq crashed", group=self._group, end=session.process_end, crashes=self._crashes
        )
        return error

    def _pass_heads(self) -> bool:
        """Handle in Python the messages that may crash the library; returns whether the group is past them."""
        try:
            self._progress.commit(self._brokers)
            topics = [*self._by_topic, retry_topic(self._group)]
            heads = heads_of(self._routes, self._brokers, topics, self._group)
        except FAILURES as error:
            self._trouble = str(error)
            return False
        known = any(head.fatal for head in heads)
        if not known and self._crashes < CRASHES_UNEXPLAINED:
            return False
        return self._handle(
            [(head.queue, head.messages[: head.fatal or None]) for head in heads if head.fatal or not known]
        )

    def _handle(self, heads: Sequence[tuple[Queue, Sequence[StoredMessage]]]) -> bool:
        self._generation += 1
        session = PythonSession(self._generation, self._progress, self._changed.set)
        tags = {topic.name: topic.tags for topic in self._topics}
        ready: list[Held] = []
        for queue, messages in heads:
            wanted = tags.get(queue.topic)
            for stored in messages:
                if wanted and stored.properties.get(TAGS) not in wanted:
                    self._progress.settled([(queue, stored.offset)])
                elif not self._progress.is_settled(queue, stored.offset):
                    ready.append(Held(session, queue, stored, inbox_of(self._by_topic, queue.topic, stored)))
        structlog.get_logger("oncemq").warning(
            "messages that may have crashed librocketmq are read without it",
            group=self._group,
            count=len(ready),
            queues=[f"{queue.topic} {queue.number} at {messages[-1].offset}" for queue, messages in heads],
        )
        session.hold(ready)
        for held in ready:
            held.inbox.offer([held])
        # The caller of `start` may be what settles these.
        self._joined.set()
        while not session.done and not self._closed and self._brokers.alive():
            self._changed.wait(LOOK_EVERY)
            self._changed.clear()
        session.alive = False
        if not session.done:
            for inbox in self.inboxes:
                inbox.lost(session.generation, tell=not self._closed)
        with suppress(*FAILURES):
            self._progress.commit(self._brokers)
        self._progress.forget_open()
        return session.done

    def _connect(self) -> set[str]:
        """Connect to every broker; returns their names."""
        names = self._names = set(self._routes.brokers())
        for name in names:
            self._brokers.get(name)
        self._places.clear()
        self._register()
        return names

    def _adopt(self, names: set[str]) -> None:
        """Take notice of brokers and queues that were added.

        librocketmq finds them by itself, and would begin in them anywhere.
        """
        for name in self._routes.brokers():
            self._brokers.get(name)
            names.add(name)
        self._register()

    def _register(self) -> None:
        for topic in self._topics:
            places = self._routes.ask(topic.name).readable
            if places != self._places.get(topic.name):
                register(self._routes, self._brokers, topic, self._group)
                self._places[topic.name] = places

    def _goes_on(self, session: Session, names: AbstractSet[str]) -> bool:
        """Return whether the process and the connections to these brokers live, and the member is not closed."""
        return not self._closed and session.running and names <= self._brokers.alive().keys()

    def _watch(self, session: Session, names: set[str]) -> None:
        while self._goes_on(session, names):
            if not self._changed.wait(LOOK_EVERY):
                self._look()
                with suppress(*FAILURES):
                    self._adopt(names)
            self._changed.clear()
            if self._idle_by_gift(session):
                return

    def _idle_by_gift(self, session: Session) -> bool:
        """Where given-back messages wait in paused inboxes, leave, and come back when one is resumed."""
        if not self._idle() or not any(inbox.waits for inbox in self.inboxes):
            return False
        self._end(session)
        self._trouble = "paused, and what was given back is left to others"
        while self._idle() and not self._closed and all(inbox.paused for inbox in self.inboxes):
            self._changed.wait(LOOK_EVERY)
            self._changed.clear()
        return True

    def _look(self) -> None:
        """Make sure that brokers still answer, and know us; remember no more than needed."""
        listed = self._listed()
        times = sum(self._instance in member for member in listed)
        if not times:
            raise BrokerUnavailable(f"RocketMQ no longer lists this member in group {self._group!r}")
        if times > len(self._brokers.alive()) and self._listed_twice != self._generation:
            self._listed_twice = self._generation
            structlog.get_logger("oncemq").warning(
                "RocketMQ lists this member twice, so part of its queues is not consumed for up to two minutes",
                group=self._group,
            )
        self._progress.commit(self._brokers, only_if_many=True)

    def _wait_until_listed(self, session: Session, names: AbstractSet[str]) -> None:
        deadline = time.monotonic() + JOIN_WITHIN
        while self._instance not in " ".join(self._listed()):
            # No lost broker will ever list us: it is the next process that joins, when the broker is back.
            if not self._goes_on(session, names):
                raise BrokerUnavailable("RocketMQ or the process with librocketmq was lost while it joined")
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"librocketmq did not join group {self._group!r}")
            self._changed.wait(0.05)
            self._changed.clear()

    def _listed(self) -> Sequence[str]:
        return [
            member for name in self._brokers.alive() for member in members(self._brokers, name, self._group)
        ]

    def _end(self, session: Session) -> None:
        if not session.alive:
            return
        session.freeze()
        try:
            if self._closed:
                self._progress.move(lambda queue, messages: self._resend(queue, self._group, messages))
            self._have_it_heard()
        finally:
            session.end()
            for inbox in self.inboxes:
                inbox.lost(self._generation, tell=not self._closed)
        try:
            self._progress.commit(self._brokers)
        except FAILURES:
            # It is committed before the next process starts.
            return

    def _have_it_heard(self) -> None:
        """Wait until the brokers have read what the process said before it froze.

        A heartbeat that a broker handles after its connection has ended registers the dead member again, for two minutes in
        which its share of the queues is not consumed. It comes by another connection than ours, and threads handle both
        side by side; so one answer says little, but not after several, with time between them, is it still waiting.

        Where our connections were cut, so were the library's, which has made its own again and said who it is: we ask on new ones.
        """
        deadline = time.monotonic() + HEARD_WITHIN
        for _ in range(_ANSWERS):
            for name in self._names:
                if (left := deadline - time.monotonic()) <= 0:
                    return
                with suppress(*FAILURES):
                    self._hello(self._brokers.get(name), left)
            time.sleep(_BETWEEN_ANSWERS)

    def _order(self) -> Mapping[str, Any]:
        logs = log_folder()
        return {
            "library": self._library,
            "group": self._group,
            "name_servers": ";".join(self._address.name_servers),
            "instance": self._instance,
            "username": self._address.username,
            "password": self._address.password,
            "threads": self._threads,
            "topics": {topic.name: topic.selection.text for topic in self._topics},
            "log_folder": str(logs),
        }

    def _hello(self, connection: Connection, timeout: float = ANSWER_WITHIN) -> None:
        body = producer_heartbeat_body(f"{self._instance}-watch", "oncemq-watch")
        connection.call(codes.HEARTBEAT, {}, body, timeout)
