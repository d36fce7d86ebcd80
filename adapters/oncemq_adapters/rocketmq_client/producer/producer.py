"""Publishing: many confirmed sends under way at once, small messages of one queue together, busy brokers asked again."""

import itertools
import os
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from threading import Semaphore
from typing import TypeGuard

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.connections.routes import Routes
from oncemq_adapters.rocketmq_client.errors import (
    Denied,
    RocketMQError,
    RocketMQRefused,
    RocketMQUnavailable,
    surfaced,
)
from oncemq_adapters.rocketmq_client.producer.delays import delay_properties
from oncemq_adapters.rocketmq_client.producer.ordered_sends import (
    OrderedSend,
    Refusals,
    SendResults,
)
from oncemq_adapters.rocketmq_client.properties import to_text
from oncemq_adapters.rocketmq_client.protocol.connection import (
    Connection,
    Fields,
    Request,
)
from oncemq_adapters.rocketmq_client.protocol.send_request import (
    Outgoing,
    batch_body,
    pack,
    parcels,
    send_fields,
)

UNDER_WAY = 256
"""Sends; more would only grow old in the broker's queue, which throws them out after 200 ms."""

TOGETHER = 64
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


class Producer:
    """Sends and waits for confirmations; safe for any number of threads.

    Args:
        brokers: connections of its own.
        routes: where topics are.
        group: how the brokers know the producer.
        limit: how long a message may wait for its confirmation.

    Attributes:
        buried: topics of retries of which a broker made dead letters; name servers may not know yet where those lie.
    """

    def __init__(self, brokers: Brokers, routes: Routes, group: str, limit: timedelta) -> None:
        self._brokers = brokers
        self._routes = routes
        self._group = group
        self._limit = limit.total_seconds()
        self._window = Semaphore(UNDER_WAY)
        self._turn = itertools.count()
        self._count = itertools.count()
        self._own = os.urandom(12).hex().upper()
        self._without_timer: set[str] = set()
        self.buried: set[str] = set()

    def unique_id(self) -> str:
        """Return an id in RocketMQ's own form, unlike any other's."""
        return f"{self._own}{next(self._count) & 0xFFFFFFFF:08X}"

    def send(self, messages: Sequence[Outgoing], within: float | None = None) -> list[RocketMQError | None]:
        """Publish; return the error of each, None for confirmed.

        Args:
            messages: what.
            within: seconds; a shorter wait than the producer's limit says nothing of the connections.
        """
        errors: list[RocketMQError | None] = [None] * len(messages)
        left = list(range(len(messages)))
        patient = within is None or within >= self._limit
        deadline = time.monotonic() + (self._limit if within is None else min(within, self._limit))
        refusals: Refusals = {}
        for pause in (*_PAUSES, None):
            self._round(messages, errors, left, refusals, deadline, patient=patient)
            left = [at for at in left if self._worth_repeating(errors[at])]
            if not left or pause is None or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
        self.buried.update(
            message.topic
            for message, error in zip(messages, errors, strict=True)
            if message.dies and error is None
        )
        return [None if error is None else surfaced(error) for error in errors]

    def _place_of(self, topic: str) -> Place:
        """Return the writable queue that is next in turn."""
        places = self._routes.find(topic).writable
        if not places:
            raise RocketMQRefused(f"topic {topic!r} of RocketMQ has no queue that can be written to")
        return places[next(self._turn) % len(places)]

    def _round(
        self,
        messages: Sequence[Outgoing],
        errors: list[RocketMQError | None],
        left: Sequence[int],
        refusals: Refusals,
        deadline: float,
        *,
        patient: bool,
    ) -> None:
        tally = SendResults(len(left), errors)
        for name, group in self._by_broker(messages, left, errors, tally).items():
            try:
                connection = self._brokers.get(name)
            except RocketMQError as error:
                tally.answered([at for at, _ in group], error)
                continue
            lines: dict[object, OrderedSend] = {}
            for number, (queue, indices) in enumerate(parcels(group, messages)):
                # Brokers store concurrent sends in any order.
                ordered = any(messages[at].ordered for at in indices)
                key = (messages[indices[0]].topic, queue) if ordered else number
                if key not in lines:
                    lines[key] = OrderedSend(name, connection, queue, messages, refusals, tally)
                lines[key].add(indices)
            self._send_to(connection, lines.values(), tally, deadline)
        if not tally.wait(deadline) and patient:
            for connection in self._brokers.alive().values():
                if tally.waits_for(connection):
                    connection.close("a message was not confirmed in time")
            tally.wait(time.monotonic() + 1)

    def _by_broker(
        self,
        messages: Sequence[Outgoing],
        left: Sequence[int],
        errors: list[RocketMQError | None],
        tally: SendResults,
    ) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for at in left:
            # Until a broker has said otherwise.
            errors[at] = RocketMQUnavailable("RocketMQ has not confirmed the message in time")
            try:
                name, queue = messages[at].place or self._place_of(messages[at].topic)
            except RocketMQError as error:
                tally.answered([at], error)
            else:
                found.setdefault(name, []).append((at, queue))
        return found

    def _send_to(
        self, connection: Connection, lines: Iterable[OrderedSend], tally: SendResults, deadline: float
    ) -> None:
        together: list[Request] = []
        for line in lines:
            if not self._window.acquire(blocking=False):
                connection.submit_all(together)
                together = []
                if not self._window.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    line.abandon(RocketMQUnavailable("too many messages wait for a confirmation"))
                    continue
            tally.begin(connection)
            together += self._next(line)
            if len(together) >= TOGETHER:
                connection.submit_all(together)
                together = []
        connection.submit_all(together)

    def _next(self, line: OrderedSend) -> Sequence[Request]:
        """Return the next request of a line; none at its end, when its place in the window is free again."""
        while indices := line.next():
            try:
                code, fields, body = self._request(line, [line.messages[at] for at in indices])
            except RocketMQError as error:
                line.refused(indices, error)
            else:
                return [(code, fields, body, partial(self._told, line, indices))]
        self._window.release()
        line.tally.end(line.connection)
        return []

    def _told(
        self,
        line: OrderedSend,
        indices: Sequence[int],
        error: RocketMQError | None,
        _fields: Fields,
        _body: bytes,
    ) -> None:
        """Take a confirmation or refusal, and send the messages that waited for it; on a connection's thread."""
        if isinstance(error, Denied):
            if error.code in codes.STORED:
                error = None
            elif "timerWheelEnable" in error.remark:
                self._without_timer.add(line.broker)
        if self._is_about_the_message(error):
            line.refused(indices, error)
        else:
            line.tally.answered(indices, error)
            if error is not None:
                # Later ones of the same queue must not come before one that is tried again.
                line.abandon(error)
        if following := self._next(line):
            line.connection.submit_all(following)

    def _is_about_the_message(self, error: RocketMQError | None) -> TypeGuard[Denied]:
        """Return whether others of the same queue may be taken although this one never will."""
        if not isinstance(error, Denied) or self._worth_repeating(error):
            return False
        return error.code not in codes.ABOUT_THE_PLACE

    def _worth_repeating(self, error: RocketMQError | None) -> bool:
        if not isinstance(error, Denied):
            return False
        return error.code in codes.BUSY or "timerWheelEnable" in error.remark

    def _request(self, line: OrderedSend, messages: Sequence[Outgoing]) -> tuple[int, Fields, bytes]:
        first = messages[0]
        if len(messages) > 1:
            text = to_text({"WAIT": "true"})
            fields = send_fields(self._group, first, line.queue, 0, text) | {"m": "true"}
            return codes.SEND_BATCH, fields, batch_body(messages)
        properties = first.properties
        if first.delay:
            timer = line.connection.version >= codes.TIMER_SINCE and line.broker not in self._without_timer
            properties = {**properties, **delay_properties(first.delay, timer=timer)}
        body, system = (first.body, first.packing) if first.packing else pack(first.body)
        fields = send_fields(self._group, first, line.queue, system, to_text(properties))
        if first.most_attempts is not None:
            fields["l"] = str(first.most_attempts)
        return codes.SEND_REPLY if first.reply else codes.SEND_MESSAGE, fields, body
