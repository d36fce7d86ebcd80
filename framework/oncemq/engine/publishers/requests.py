"""Waits for the answers of published requests, and reads them."""

import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic_core import from_json

from oncemq.common.durations import delay_of, format_duration
from oncemq.contracts.requests import Answer
from oncemq.engine.base.open_units import is_inside
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.errors import BrokerUnavailable, HandlerFault, RequestFailed, RequestTimeout, Unpublishable
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.headers import ANSWER_FAILURES
from oncemq.message.outgoing import OutgoingTopic


@dataclass(frozen=True, slots=True)
class Request:
    """A request that its broker has confirmed.

    Args:
        topic: the topic's name.
        message_id: of its message.
        wait: for how long its answer is awaited, from `deadline - wait` on.
        deadline: until when, by the monotonic clock, in seconds.
        answer: where it arrives.
    """

    topic: str
    message_id: str
    wait: timedelta
    deadline: float
    answer: "Future[Answer]" = field(repr=False)

    @property
    def left(self) -> float:
        """Return the seconds until the deadline; 0.0 if it is over."""
        return max(0.0, self.deadline - time.monotonic())

    def result(self) -> Any:
        """Wait for the answer, and return it as `read` does.

        Raises:
            RequestTimeout: there is none in time.
            RequestFailed: as `read`.
            BrokerUnavailable: the publisher was closed.
        """
        try:
            found = self.answer.result(self.left)
        except TimeoutError:
            raise self.timeout() from None
        return self.read(found)

    def read(self, answer: Answer) -> Any:
        """Return what the answer's JSON says.

        Raises:
            RequestFailed: it says that the request has failed, or it cannot be read as JSON.
        """
        if answer.trouble:
            raise self._no_result(f"its answer cannot be read: {answer.trouble}", "unreadable")
        try:
            found = from_json(answer.body)
        except ValueError as error:
            raise self._no_result(f"its answer is not JSON: {error}", "unreadable") from error
        if not answer.failed:
            return found
        said = found if isinstance(found, dict) else {}
        reason, text = str(said.get("reason", "failed")), str(said.get("error", ""))
        why = f"it is a dead letter, reason {reason}"
        raise self._no_result(f"{why}: {text}" if text else why, reason)

    def timeout(self, why: str = "") -> RequestTimeout:
        """Return the error of a request without an answer in time."""
        return _no_answer(self.topic, self.message_id, self.wait, why)

    def _no_result(self, why: str, reason: str) -> RequestFailed:
        text = f"the request {self.message_id} to {self.topic!r} has no result: {why}"
        return RequestFailed(text, self.topic, self.message_id, reason)


def send_request(
    topic: OutgoingTopic, message: OutgoingMessage, wait: timedelta, publishing: Publishing, *, carries: bool
) -> Request:
    """Publish a request, and return it once its broker has confirmed it.

    Args:
        topic: where to.
        message: what.
        wait: how long all of it may take, with the answer.
        publishing: sends it.
        carries: the topic's broker carries requests.

    Raises:
        Unpublishable: the broker cannot.
        RequestTimeout: it did not confirm in time.
        BrokerError: as `AppPublisher.publish`.
    """
    if not carries:
        raise Unpublishable(
            f"broker {topic.broker!r} of topic {topic.name!r} carries no answers: use publish, or put the topic on "
            "RabbitMQ (amqp://) or RocketMQ (rocketmq://)"
        )
    message = replace(message, headers={**message.headers, ANSWER_FAILURES: "1"})
    deadline, name = time.monotonic() + wait.total_seconds(), message.message_id or ""
    try:
        answer = publishing.request(topic, message, wait)
    except BrokerUnavailable as error:
        if time.monotonic() < deadline:
            raise
        raise _no_answer(topic.name, name, wait, f", and its broker did not confirm it: {error}") from error
    return Request(topic.name, name, wait, deadline, answer)


def checked_wait(wait: timedelta | str | float) -> timedelta:
    """Return for how long an answer is awaited.

    Raises:
        Unpublishable: it is none, or not longer than zero.
    """
    try:
        found = delay_of(wait)
    except (TypeError, ValueError) as error:
        raise Unpublishable(f"wait={wait!r}: {error}") from error
    if not found:
        raise Unpublishable(f"wait={wait!r}: say how long the answer is awaited, like 5s")
    return found


def refuse_inside() -> None:
    """Refuse to wait for an answer while a transaction of the framework is open here.

    Raises:
        HandlerFault: one is open.
    """
    if is_inside():
        raise HandlerFault(
            "request() was called inside of an open transaction: it would wait for the answer with rows locked, and what "
            "the answering side reads is not committed yet; publish with oncemq.Publisher and handle the answer as a message "
            "of its own, or ask in a handler with effects: external"
        )


def _no_answer(topic: str, message_id: str, wait: timedelta, why: str) -> RequestTimeout:
    text = (
        f"no answer to the request {message_id} to {topic!r} within {format_duration(wait)}{why}; it may still take effect. "
        "Ask again with the same identity: it takes effect once, and its stored answer is given. If there is never one, "
        "look for a consumer with reply: true, and among the dead letters"
    )
    return RequestTimeout(text, topic, message_id)
