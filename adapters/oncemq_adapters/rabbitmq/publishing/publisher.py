"""Publishing with confirmation on a connection of its own, so that a blocked publisher never blocks acknowledgements."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Lock
from typing import Any

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.connection.errors import ClosedFor, Provoked
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.publishing.confirms import Batch, ConfirmChannel, Publication

_AT_ONCE = 500
_IN_FLIGHT = 2
"""Parts: while the broker confirms one, the next is sent."""


class Publisher:
    """Connects on first use and stays connected; `send` may be called from any thread.

    Retries and dead letters have a channel apart from the app's own messages: a missing exchange closes
    the channel and everything unconfirmed on it.

    Args:
        address: where to connect, and how long to wait for confirmations.
        name: shown to the broker's operators.
    """

    def __init__(self, address: Address, name: str) -> None:
        self._limit = address.publish_timeout.total_seconds()
        self._link = Link(address, name, self)
        self._unblocked = Event()
        self._unblocked.set()
        self._ready = {kind: Event() for kind in (True, False)}
        self._channels = {kind: ConfirmChannel(ready) for kind, ready in self._ready.items()}
        self._lock = Lock()
        self._error: BrokerError | None = None
        self._blocked_why = ""

    def send(
        self, publications: Sequence[Publication], *, own: bool, within: float | None = None
    ) -> list[BrokerError | None]:
        """Publish and wait for all confirmations; return the error of each, None for confirmed.

        Args:
            publications: sent in this order, so many at once that each part is confirmed well within the time limit.
            own: retries and dead letters, in contrast to the app's messages.
            within: seconds for each part, if less than `publish_timeout`.
        """
        limit = self._limit if within is None else min(self._limit, within)
        errors: list[BrokerError | None] = []
        begun: deque[_Part] = deque()
        for start in range(0, len(publications), _AT_ONCE):
            begun.append(self._begin(publications[start : start + _AT_ONCE], own=own, limit=limit))
            if len(begun) == _IN_FLIGHT:
                errors += self._finish(begun, own=own)
        while begun:
            errors += self._finish(begun, own=own)
        return errors

    def _begin(self, publications: Sequence[Publication], *, own: bool, limit: float) -> "_Part":
        deadline = time.monotonic() + limit
        return _Part(publications, self._post(publications, own=own, deadline=deadline), deadline)

    def _finish(self, begun: "deque[_Part]", *, own: bool) -> list[BrokerError | None]:
        """Return the errors of the first part, which is removed; whatever failed is sent again."""
        part = begun.popleft()
        publications, deadline = part.publications, part.deadline
        errors = self._answers(part.batch, deadline)
        if not any(errors):
            return errors
        # What ends the channel fails all that is in flight there: so nothing else is while the culprit is looked for.
        for other in begun:
            self._answers(other.batch, other.deadline)
        # A queue of ours that was deleted behind our back is declared again by the second try.
        again = [at for at, error in enumerate(errors) if _worth_repeating(publications[at], error)]
        if again:
            repeated = self._send([publications[at] for at in again], own=own, deadline=deadline)
            for at, error in zip(again, repeated, strict=True):
                errors[at] = error
        return self._send_apart(publications, errors, own=own, deadline=deadline, alone=False)

    def _send_apart(
        self,
        publications: Sequence[Publication],
        errors: list[BrokerError | None],
        *,
        own: bool,
        deadline: float,
        alone: bool,
    ) -> list[BrokerError | None]:
        """Send the halves of what failed together by themselves: what is ended for one message fails all that it holds.

        With `alone`, no other part was in flight, so a single message failed by its own fault.
        """
        kinds = (BrokerRefused, Provoked) if own else (ClosedFor, Provoked)
        failed = [at for at, error in enumerate(errors) if isinstance(error, kinds)]
        if not failed:
            return errors
        if alone and len(publications) == 1:
            return [_own_fault(error) for error in errors]
        middle = (len(failed) + 1) // 2
        for part in filter(None, (failed[:middle], failed[middle:])):
            mine = [publications[at] for at in part]
            again = self._send(mine, own=own, deadline=deadline)
            found = self._send_apart(mine, again, own=own, deadline=deadline, alone=True)
            for at, error in zip(part, found, strict=True):
                errors[at] = error
        return errors

    def reconnect(self, why: str) -> None:
        """Cut the connection, so that the next message goes on a new one; unconfirmed ones fail."""
        self._link.post(lambda: self._link.abandon(why))

    def stop(self, timeout: timedelta) -> None:
        """Disconnect."""
        self._link.stop(timeout)

    def before_connecting(self) -> None:
        """Need nothing; queues are declared with their first message."""

    def connected(self, connection: Any) -> None:
        """Open the channels."""
        connection.add_on_connection_blocked_callback(self._blocked)
        connection.add_on_connection_unblocked_callback(lambda *_: self._unblocked.set())
        for channel in self._channels.values():
            channel.start(connection)

    def disconnected(self, error: BrokerError) -> None:
        """Fail unconfirmed publications."""
        self._error = error
        for channel in self._channels.values():
            channel.lose(error)
        self._unblocked.set()

    def _send(
        self, publications: Sequence[Publication], *, own: bool, deadline: float
    ) -> list[BrokerError | None]:
        return self._answers(self._post(publications, own=own, deadline=deadline), deadline)

    def _post(self, publications: Sequence[Publication], *, own: bool, deadline: float) -> Batch:
        """Hand publications to the connection's thread once it can send."""
        self._link.start()
        batch = Batch(publications)
        if not self._wait(self._ready[own], deadline):
            batch.fail(self._error or BrokerUnavailable("no publishing connection to RabbitMQ in time"))
        elif not self._wait(self._unblocked, deadline):
            batch.fail(BrokerUnavailable(f"RabbitMQ accepts no messages now: {self._blocked_why}"))
        elif not self._link.post(lambda: self._channels[own].send(batch)):
            batch.fail(
                self._error or BrokerUnavailable("the publishing connection to RabbitMQ was lost just now")
            )
        return batch

    def _answers(self, batch: Batch, deadline: float) -> list[BrokerError | None]:
        """Wait for all confirmations until the deadline."""
        if not self._wait(batch.done, deadline) and not self._unblocked.is_set():
            batch.explain(self._blocked_why)
        return list(batch.errors)

    @staticmethod
    def _wait(event: Event, deadline: float) -> bool:
        return event.wait(max(0.0, deadline - time.monotonic()))

    def _blocked(self, _: Any, frame: Any) -> None:
        self._blocked_why = f"it blocked the connection ({frame.method.reason})"
        self._unblocked.clear()


@dataclass(frozen=True, slots=True)
class _Part:
    """Publications that the connection's thread sends, until when they must be confirmed.

    Args:
        publications: in order.
        batch: their answers.
        deadline: by the monotonic clock, in seconds.
    """

    publications: Sequence[Publication]
    batch: Batch
    deadline: float


def _own_fault(error: BrokerError | None) -> BrokerError | None:
    """Return why one message alone failed: the broker is not away if it ends the connection for it."""
    if not isinstance(error, Provoked):
        return error
    return BrokerRefused(f"RabbitMQ ends the connection for this message: {error}")


def _worth_repeating(publication: Publication, error: BrokerError | None) -> bool:
    return publication.declare is not None and isinstance(error, BrokerRefused)
