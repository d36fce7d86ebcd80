"""Messages that an administrator has a member run: each goes the way of every delivery, and its outcome is the answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.properties import for_replay
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part, Subscriptions
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import origin_of
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.names import DEAD_PREFIX
from oncemq_adapters.rocketmq_client.properties import TAGS
from oncemq_adapters.rocketmq_client.protocol import DEFERRED, Deferred, Frame, StoredMessage, decode

DONE: Final = "CR_SUCCESS"
LATER: Final = "CR_LATER"
FAILED: Final = "CR_THROW_EXCEPTION"
"""Java's words for the outcome."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the administrator is answered, once.

    Args:
        send: sends the answer's body.
        fifo: the consumer is an orderly one, in Java's words.
        since: when it was asked, monotonic.
    """

    send: Callable[[bytes], object]
    fifo: bool
    since: float

    def __call__(self, outcome: str, remark: str) -> None:
        """Send it."""
        self.send(answer_body(outcome, remark, self.since, fifo=self.fifo))


def answer_body(outcome: str, remark: str, since: float, *, fifo: bool) -> bytes:
    """Return the answer in the words of Java's `ConsumeMessageDirectlyResult`."""
    told = {
        "order": fifo,
        "autoCommit": True,
        "consumeResult": outcome,
        "remark": remark,
        "spentTimeMills": round((monotonic() - since) * 1000),
    }
    return json.dumps(told).encode()


class DirectQueue(ProcessQueue):
    """A queue of one message, which no broker assigned and nothing is committed of.

    Args:
        stored: the message.
        generation: of its delivery.
        broker: that asked; copies go there.
        answer: called once, with the outcome.
        letter: it is a dead letter, and stays one.
    """

    def __init__(
        self, stored: StoredMessage, generation: int, broker: str, answer: Answer, *, letter: bool
    ) -> None:
        super().__init__((stored.topic, broker, 0), generation)
        self.letter = letter
        self.delivery: Delivery | None = None
        self.failure = ("", "")
        self._answer: Answer | None = answer
        self._answering = Lock()
        self.begin(stored.offset, None, ())
        self.advance(stored.offset + 1, [stored])

    def finish(self, offsets: Sequence[int]) -> bool:
        """Settle the message, and answer."""
        done = super().finish(offsets)
        self.tell()
        return done

    def tell(self) -> None:
        """Answer with what became of the message; once."""
        with self._answering:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        outcome, remark = self.failure
        if not outcome:
            known = self.delivery.outcome if self.delivery is not None else None
            outcome, remark = DONE, str(known or "acknowledged")
        answer(outcome, remark)


class DirectRuns:
    """Runs messages for administrators.

    Args:
        parts: the member's subscriptions.
        brokers: its connections.
        generation: returns one that no queue has.
        fifo: it is an orderly consumer.
    """

    def __init__(
        self, parts: Subscriptions, brokers: Brokers, generation: Callable[[], int], *, fifo: bool
    ) -> None:
        self._parts = parts
        self._brokers = brokers
        self._generation = generation
        self._fifo = fifo

    def run(self, broker: str, frame: Frame) -> bytes | Deferred:
        """Have the message in a request run; returns the answer, or that it follows. On the connection's thread."""
        since = monotonic()
        connection = self._brokers.alive().get(broker)
        if connection is None:
            return self._refused("the member is not connected yet", since)
        try:
            (stored,) = decode(frame.body, frame.fields.get("topic", ""), open_copy=opened).messages
        except (*FAILURES, ValueError) as error:
            return self._refused(f"it is not one message: {error}", since)
        letter = stored.topic.startswith(DEAD_PREFIX)
        topic = origin_of(stored)
        part = self._parts.part(topic)
        if part is None:
            return self._refused(f"no consumer of this process reads topic {topic!r} in this group", since)
        if (why := _unwanted(part, stored)) is not None:
            return self._refused(why, since)
        if letter:
            stored = _revived(stored, topic)
        opaque = frame.opaque
        answer = Answer(lambda body: connection.answer(opaque, body), self._fifo, since)
        queue = DirectQueue(stored, self._generation(), broker, answer, letter=letter)
        queue.delivery = part.window.delivery_of(queue, stored)
        part.window.hand_over(queue.delivery)
        return DEFERRED

    def _refused(self, why: str, since: float) -> bytes:
        return answer_body(FAILED, why, since, fifo=self._fifo)


def _unwanted(part: Part, stored: StoredMessage) -> str | None:
    if part.window.paused:
        return f"consumer {part.window.consumer!r} is paused"
    wanted, tag = part.options.tags, stored.properties.get(TAGS)
    if wanted and tag not in wanted:
        return f"consumer {part.window.consumer!r} does not take tag {tag!r}: {' || '.join(sorted(wanted))}"
    return None


def _revived(letter: StoredMessage, topic: str) -> StoredMessage:
    """Return a dead letter as the message that it was, as a replay brings it."""
    return StoredMessage(
        topic,
        letter.body,
        for_replay(letter.properties),
        letter.offset,
        letter.born,
        letter.stored,
        0,
        letter.flag,
        letter.trouble,
        letter.packing,
        head=letter.head,
    )


def queue_of(delivery: Delivery) -> DirectQueue | None:
    """Return a delivery's queue if an administrator asked for it."""
    queue = getattr(delivery.token, "queue", None)
    return queue if isinstance(queue, DirectQueue) else None


def note(requests: Sequence[RetryRequest] | Sequence[DeadLetterRequest]) -> None:
    """Remember for the answers what failed, and what becomes of it once its copy is confirmed."""
    for request in requests:
        if (queue := queue_of(request.delivery)) is not None:
            headers = request.headers
            text = headers.get(names.ERROR_TEXT) or headers.get(names.REASON, "")
            if isinstance(request, RetryRequest):
                queue.failure = LATER, f"retry in {request.delay.total_seconds():g} s: {text}"
            else:
                queue.failure = FAILED, f"dead letter: {text}"


def without_letters(
    dead: Sequence[DeadLetterRequest],
) -> tuple[Sequence[DeadLetterRequest], Sequence[Delivery]]:
    """Return what becomes a dead letter, and the deliveries of dead letters, which are some already."""
    letters = [
        request.delivery
        for request in dead
        if (queue := queue_of(request.delivery)) is not None and queue.letter
    ]
    return [request for request in dead if request.delivery not in letters] if letters else dead, letters


def without_direct(deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
    """Return what may be redelivered, and what was asked for by administrators: they ask again."""
    direct = []
    for delivery in deliveries:
        if (queue := queue_of(delivery)) is not None:
            queue.failure = LATER, "it was not started: the consumer stops or is paused"
            direct.append(delivery)
    return [delivery for delivery in deliveries if delivery not in direct] if direct else deliveries, direct
