"""Requests: messages that say which client waits for a reply, and the replies that brokers push to it.

A consumer stores its reply at any master of its cluster, and that one pushes it to the connection on which it knows the client.
So a client that asks stays registered with every master.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event, Lock, Thread
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.connections.routes import Routes
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.producer.producer import Producer
from oncemq_adapters.rocketmq_client.properties import CORRELATION, REQUESTER, TIME_LEFT, from_text
from oncemq_adapters.rocketmq_client.protocol.connection import Connection
from oncemq_adapters.rocketmq_client.protocol.frames import Frame
from oncemq_adapters.rocketmq_client.protocol.heartbeat import producer_heartbeat_body
from oncemq_adapters.rocketmq_client.protocol.message_codec import unpack_flagged
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing

JOIN_WITHIN: Final = 1.0
"""Seconds that the first request waits for masters that cannot be reached; the reply may come through another one."""
_PAUSE: Final = 1.0
_AGAIN: Final = (1.0, 5.0, 30.0, 60.0, 130.0)
"""Seconds after a reconnection at which a client registers again, the last one after a broker has given up a silent connection."""


class Reply(NamedTuple):
    """What came back for a request.

    Args:
        body: unpacked; as it came where that failed.
        properties: of the message that the consumer sent.
        trouble: why the body cannot be unpacked; empty for a good one.
    """

    body: bytes
    properties: Mapping[str, str]
    trouble: str = ""


Answer = TypeVar("Answer")


class Requester(Generic[Answer]):
    """Sends requests, and gives each its reply; safe for any number of threads.

    Args:
        brokers: connections, whose requests and losses it is told.
        routes: who the brokers are.
        producer: sends by these connections.
        client: the id under which the connections' heartbeats register, unlike any other's.
        group: the producer group of these heartbeats.
        make: returns what a future is given for a reply; on the connection's thread, so it must be quick.
    """

    def __init__(
        self,
        brokers: Brokers,
        routes: Routes,
        producer: Producer,
        client: str,
        group: str,
        make: Callable[[Reply], Answer],
    ) -> None:
        self._brokers = brokers
        self._routes = routes
        self._producer = producer
        self._client = client
        self._group = group
        self._make = make
        self._lock = Lock()
        # Weak: a request that nothing waits for any more needs no reply.
        self._waiting: WeakValueDictionary[str, Future[Answer]] = WeakValueDictionary()
        self._masters: dict[str, _Registration] = {}
        self._closed: BaseException | None = None

    def begin(self, message: Outgoing, wait: float) -> "Future[Answer]":
        """Send a request, and return where its reply arrives; the first one counts.

        Args:
            message: what is sent; the properties that say who waits are added to it.
            wait: seconds that this call may take, and that the consumer is told.

        Raises:
            RocketMQError: the broker refused it, or did not confirm it: then it may have it nevertheless.
        """
        deadline = time.monotonic() + wait
        self._join(deadline)
        correlation, answer = str(uuid.uuid4()), Future[Answer]()
        with self._lock:
            if self._closed is not None:
                raise RocketMQUnavailable("the client is closed")
            # Before it is sent: a reply may be here before the confirmation.
            self._waiting[correlation] = answer
        message.properties[CORRELATION] = correlation
        message.properties[REQUESTER] = self._client
        message.properties[TIME_LEFT] = str(max(1, round(wait * 1000)))
        left = deadline - time.monotonic()
        if left <= 0:
            raise RocketMQUnavailable("RocketMQ could not be reached in time: the request was not sent")
        (error,) = self._producer.send([message], within=left)
        if error is not None:
            raise error
        return answer

    def pushed(self, frame: Frame) -> bytes | None:
        """Take a reply that a broker pushes, and confirm it; None for another request of a broker."""
        if frame.code != codes.PUSH_REPLY:
            return None
        reply = reply_of(frame)
        with self._lock:
            answer = self._waiting.pop(reply.properties.get(CORRELATION, ""), None)
        if answer is not None and answer.set_running_or_notify_cancel():
            try:
                answer.set_result(self._make(reply))
            except Exception as error:  # it is the requester's, and no reason to lose the connection
                answer.set_exception(error)
        return b""

    def lost(self, broker: str) -> None:
        """Have the connection to a broker opened again, as soon as that is possible."""
        with self._lock:
            registration = self._masters.get(broker)
        if registration is not None:
            registration.changed.set()

    def look(self) -> None:
        """Register with masters that are new; nothing before the first request."""
        if self._masters:
            self._register()

    def close(self, error: BaseException) -> None:
        """Stop; what still waits fails with this error."""
        with self._lock:
            self._closed = error
            waiting = list(self._waiting.values())
            self._waiting.clear()
            registrations = list(self._masters.values())
        for registration in registrations:
            registration.stop()
        for answer in waiting:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(error)

    def _join(self, deadline: float) -> None:
        """Be registered with every master that can be reached."""
        if not self._masters:
            self._register()
        until = min(deadline, time.monotonic() + JOIN_WITHIN)
        for registration in list(self._masters.values()):
            registration.tried.wait(max(0.0, until - time.monotonic()))

    def _register(self) -> None:
        try:
            names = self._routes.brokers()
        except RocketMQError:
            # An account may be kept from this list; the routes of its topics have their masters.
            names = dict(self._routes.masters)
        with self._lock:
            if self._closed is not None:
                return
            fresh = [name for name in names if name not in self._masters]
            for name in fresh:
                self._masters[name] = _Registration(self._brokers, name, self._client, self._group)
        for name in fresh:
            self._masters[name].start()


class _Registration:
    """Keeps a client registered with one master, on a thread of its own: one that is frozen holds up no other.

    A broker that notices the end of a former connection forgets the client, also where it has a new connection, and no heartbeat
    brings it back. So after a reconnection the client leaves and registers again, several times.

    Attributes:
        tried: the first try to connect is over.
        changed: the connection was lost, or the client is closed.
    """

    def __init__(self, brokers: Brokers, name: str, client: str, group: str) -> None:
        self.tried = Event()
        self.changed = Event()
        self._brokers = brokers
        self._name = name
        self._fields = {"clientID": client, "producerGroup": group}
        self._body = producer_heartbeat_body(client, group)
        self._over = False
        self._thread = Thread(target=self._run, name=f"rocketmq-replies-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon."""
        self._over = True
        self.changed.set()

    def _run(self) -> None:
        known: Connection | None = None
        due: Sequence[float] = ()
        while not self._over:
            try:
                connection = self._brokers.get(self._name)
                if known not in (None, connection):
                    due = [time.monotonic() + seconds for seconds in _AGAIN]
                known = connection
                if due and time.monotonic() >= due[0]:
                    due = due[1:]
                    self._again(connection)
            except RocketMQError:
                pause: float | None = _PAUSE
            else:
                pause = max(0.0, due[0] - time.monotonic()) if due else None
            self.tried.set()
            if self.changed.wait(pause):
                self.changed.clear()

    def _again(self, connection: Connection) -> None:
        try:
            connection.call(codes.UNREGISTER, self._fields)
            connection.call(codes.HEARTBEAT, {}, self._body)
        except Denied:
            return
        except RocketMQError as error:
            connection.close(error)
            raise


def reply_of(frame: Frame) -> Reply:
    """Return the reply that a broker pushes."""
    fields: Mapping[str, Any] = frame.fields
    body, trouble = unpack_flagged(frame.body, str(fields.get("sysFlag", "")))
    return Reply(body, from_text(str(fields.get("properties", ""))), trouble)
