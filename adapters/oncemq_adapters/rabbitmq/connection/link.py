"""One connection kept alive by a thread of its own, for ever, with growing jittered pauses between the tries."""

import logging
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import Any, Protocol

from pika.adapters.select_connection import IOLoop

from oncemq.common.forked import withhold
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import Address, Host
from oncemq_adapters.rabbitmq.connection.host_order import Try
from oncemq_adapters.rabbitmq.connection.pika_connection import Connection

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 4.0
"""Seconds; however long the broker was away, work goes on within ten seconds after it is back."""

SECONDS_TO_CLOSE = 2.0
"""Until a connection that cannot be cut, but was asked to close, is left as it is."""


class Listener(Protocol):
    """What uses the connection; every call comes from the link's own thread."""

    def before_connecting(self) -> None:
        """Do what must be done first; a BrokerError counts as a failed try."""
        ...

    def connected(self, connection: Any) -> None:
        """Use a connection that has just been opened."""
        ...

    def disconnected(self, error: BrokerError) -> None:
        """Note that there is no connection; called after all hosts have failed, too."""
        ...


class Link:
    """Runs pika's own loop in a thread: callbacks cost least there, and only that thread may touch pika.

    Args:
        address: where to connect.
        name: shown to the broker's operators.
        listener: what uses the connection.
    """

    def __init__(self, address: Address, name: str, listener: Listener) -> None:
        self._address = address
        self._name = name
        self._listener = listener
        self._lock = Lock()
        self._loop: Any = None
        self._connection: Any = None
        self._stopping = Event()
        self._thread: Thread | None = None
        self._was_open = False
        self._failures = 0
        self._draw = random.SystemRandom()
        withhold(self, Link._descriptors)

    def start(self) -> None:
        """Start connecting; does nothing the second time."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = Thread(target=self._run, name=f"oncemq {self._name}", daemon=True)
                self._thread.start()

    def post(self, callback: Callable[[], None]) -> bool:
        """Have the link's thread call `callback` soon; False if there is no loop that could."""
        with self._lock:
            if self._loop is None:
                return False
            self._loop.add_callback_threadsafe(callback)
            return True

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` after `seconds` unless the connection is lost before; from the link's thread only."""
        if self._loop is not None:
            self._loop.call_later(seconds, callback)

    def abandon(self, why: str) -> None:
        """Cut the connection although the broker may think it fine; from the link's thread only."""
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        # As pika's own heartbeat check does: a close in order waits for a peer that does not answer.
        if not connection.cut(why):
            self._loop.call_later(SECONDS_TO_CLOSE, self._loop.stop)

    def pause_after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10)) * self._draw.uniform(0.5, 1.0))

    def stop(self, timeout: timedelta) -> None:
        """Close the connection in order, or after `timeout` leave it to the broker to notice."""
        self._stopping.set()
        self.post(self._close)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout.total_seconds())
            if thread.is_alive():
                self.post(self._leave)
                thread.join(1.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for attempt in self._address.order.tries():
                error = self._try(attempt)
                if self._stopping.is_set():
                    return
                if self._was_open:
                    self._address.order.succeeded(attempt.host)
                    break
                self._address.order.failed(attempt.host)
            self._listener.disconnected(error)
            self._stopping.wait(self.pause_after(self._failures))
            self._failures += 1

    def _try(self, attempt: Try[Host]) -> BrokerError:
        self._was_open = False
        try:
            self._listener.before_connecting()
            return self._serve(attempt)
        except BrokerError as error:
            return error
        except Exception as error:
            # A defect here must not end the only thread that reconnects; pika itself has one when it is
            # closed while it connects.
            if not self._stopping.is_set():
                logging.getLogger(__name__).exception("connection thread failed, reconnecting")
            return BrokerUnavailable(f"the connection to RabbitMQ at {attempt.host} failed: {error!r}")

    def _serve(self, attempt: Try[Host]) -> BrokerError:
        host = attempt.host
        ended: list[BrokerError] = []
        loop = IOLoop()

        def opened(connection: Any) -> None:
            self._failures = 0
            self._was_open = True
            self._listener.connected(connection)

        def failed(_: Any, error: BaseException) -> None:
            ended.append(faults.connecting(error, self._address, host))
            # Later, because pika closes its socket after this call.
            loop.call_later(0, loop.stop)

        def closed(_: Any, error: BaseException) -> None:
            ended.append(faults.lost(error, host))
            loop.call_later(0, loop.stop)

        with self._lock:
            self._loop = loop
        try:
            parameters = self._address.parameters(host, self._name, attempt.patience)
            self._connection = Connection(parameters, opened, failed, closed, custom_ioloop=loop)
            if self._stopping.is_set():
                self._close()
            loop.start()
        finally:
            self._connection = None
            with self._lock:
                self._loop = None
            loop.close()
        return ended[0] if ended else BrokerUnavailable(f"the connection to RabbitMQ at {host} was given up")

    def _descriptors(self) -> Sequence[int]:
        connection = self._connection
        return () if connection is None else connection.descriptors()

    def _close(self) -> None:
        connection = self._connection
        if connection is not None and not (connection.is_closing or connection.is_closed):
            connection.close()

    def _leave(self) -> None:
        self.abandon("it was not closed in time")


def quiet_pika() -> None:
    """Let pika's own log lines pass only where logging is configured for them; ours say the same without tracebacks.

    Where warnings of pika are shown, those of its channels are not: a refused declaration is often only a question, such as
    whether a queue exists.
    """
    logger, channels = logging.getLogger("pika"), logging.getLogger("pika.channel")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    elif logger.level == logging.WARNING and channels.level == logging.NOTSET:
        channels.setLevel(logging.ERROR)
