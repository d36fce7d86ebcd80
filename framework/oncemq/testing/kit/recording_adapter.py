"""Records what an app publishes, on its way to the broker."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, cast

from oncemq.contracts.adapter import CONFIRMED, Adapter, Confirmed, Refused
from oncemq.contracts.requests import Answer, RequestingAdapter
from oncemq.errors import BrokerError, Unroutable
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.kit.messages import PublishedMessage, as_published
from oncemq.testing.kit.outcomes import Outcome, OutcomeRecorder


class RecordingAdapter:
    """Passes everything on to an adapter, and records what is published.

    Args:
        adapter: the broker's.
        recorder: expects the messages.
        expected: returns the outcome of a message to come.
        published: receives each confirmed message.
    """

    def __init__(
        self,
        adapter: Adapter,
        recorder: OutcomeRecorder,
        expected: Callable[[str, OutgoingMessage], Outcome],
        published: Callable[[PublishedMessage], None],
    ) -> None:
        self._adapter = adapter
        self._recorder = recorder
        self._expected = expected
        self._published = published

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish, and record the confirmed ones."""
        # Before they are sent: they may be delivered before the broker answers.
        outcomes = [self._expected(topic, message) for message in messages]
        answers = self._adapter.publish(topic, options, messages)
        told: list[Confirmed | Refused] = []
        for message, outcome, answer in zip(messages, outcomes, answers, strict=True):
            if isinstance(answer, Refused) and not _would_be_routed(answer, outcome):
                self._recorder.withdraw(outcome)
                told.append(answer)
            else:
                self._published(as_published(topic, message, outcome))
                told.append(CONFIRMED)
        return told

    def request(
        self, topic: str, options: Mapping[str, Any], message: OutgoingMessage, wait: timedelta
    ) -> Future[Answer]:
        """Publish a request, and record it."""
        outcome = self._expected(topic, message)
        try:
            answer: Future[Answer] = cast("RequestingAdapter", self._adapter).request(
                topic, options, message, wait
            )
        except BrokerError:
            self._recorder.withdraw(outcome)
            raise
        self._published(as_published(topic, message, outcome))
        return answer


def _would_be_routed(answer: Refused, outcome: Outcome) -> bool:
    """Whether only the queue of another app is missing, which need not run in a test."""
    return isinstance(answer.error, Unroutable) and not outcome.consumers
