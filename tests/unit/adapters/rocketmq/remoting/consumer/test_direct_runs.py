"""Messages that an administrator has a member run: what is run, and what is answered when."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.remoting.consumer import direct_runs, settlement
from oncemq_adapters.rocketmq.remoting.consumer.direct_runs import DirectRuns
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part, Subscriptions
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.protocol import DEFERRED, Frame
from support.brokers.stored import stored


class Broker:
    """A live connection, and what was answered on it."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def alive(self) -> dict[str, "Broker"]:
        """Return itself as the connection."""
        return {"b": self}

    def answer(self, number: int, body: bytes) -> None:
        """Keep the answer."""
        assert number == 7
        self.answers.append(json.loads(body))


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []

    def deliver(self, deliveries: Sequence[Delivery], _consumer: str) -> None:
        """Keep them."""
        self.delivered += deliveries


class Asked:
    """An administrator's question to a member with one subscription, and what came of it."""

    def __init__(self, body: bytes, *, tags: Sequence[str] = (), paused: bool = False) -> None:
        sink: Any = Sink()
        window = PrefetchWindow("c", "topic", "g", 1, sink)
        if paused:
            window.pause()
        parts = Subscriptions({"topic": Part(parse_topic("topic", {"tags": list(tags)}, ""), window)})
        broker: Any = Broker()
        self.answers: list[dict[str, Any]] = broker.answers
        frame = Frame(codes.CONSUME_DIRECTLY, 7, 0, 0, "", {"topic": "topic"}, body)
        said = DirectRuns(parts, broker, lambda: 5, fifo=False).run("b", frame)
        if isinstance(said, bytes):
            self.answers.append(json.loads(said))
        else:
            assert said is DEFERRED
        self.delivered: list[Delivery] = sink.delivered

    def said(self) -> tuple[str, str]:
        """Return outcome and remark of the only answer."""
        (answer,) = self.answers
        return answer["consumeResult"], answer["remark"]


def test_the_answer_follows_once_when_the_message_is_settled() -> None:
    """With the name of its verdict; a second settlement answers nothing more."""
    asked = Asked(stored(b"x"))
    (delivery,) = asked.delivered
    assert (delivery.message.body, delivery.generation) == (b"x", 5)
    assert asked.answers == []
    delivery.outcome = "duplicate"
    assert settlement.acknowledge([delivery]) == []
    assert asked.said() == ("CR_SUCCESS", "duplicate")
    assert len(settlement.acknowledge([delivery])) == 1
    assert len(asked.answers) == 1


def test_a_retry_is_told_with_its_delay_and_error() -> None:
    """As soon as its copy is safe: the administrator need not ask again."""
    asked = Asked(stored(b"x"))
    (delivery,) = asked.delivered
    direct_runs.note([RetryRequest(delivery, timedelta(seconds=5), {names.ERROR_TEXT: "busy"})])
    assert asked.answers == []
    settlement.acknowledge([delivery])
    assert asked.said() == ("CR_LATER", "retry in 5 s: busy")


def test_only_a_dead_letter_makes_no_other_one() -> None:
    """It lies there already; what lay in the topic becomes one."""
    alive, dead = (
        Asked(stored(b"x")),
        Asked(stored(b"x", topic="%DLQ%g", text="RETRY_TOPIC\x01topic\x02")),
    )
    requests = [DeadLetterRequest(asked.delivered[0], {names.REASON: "rejected"}) for asked in (alive, dead)]
    direct_runs.note(requests)
    left, letters = direct_runs.without_letters(requests)
    assert (list(left), letters) == ([requests[0]], [dead.delivered[0]])
    settlement.acknowledge(letters)
    assert dead.said() == ("CR_THROW_EXCEPTION", "dead letter: rejected")


def test_what_is_given_back_comes_again_only_if_it_is_asked_for_again() -> None:
    """No queue holds it for another member, so the administrator is told."""
    asked = Asked(stored(b"x"))
    free, direct = direct_runs.without_direct(asked.delivered)
    assert (list(free), list(direct)) == ([], asked.delivered)
    settlement.acknowledge(direct)
    assert asked.said() == ("CR_LATER", "it was not started: the consumer stops or is paused")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Asked(b""), "it is not one message"),
        (Asked(b"\0\0\0\xff"), "it is not one message"),
        (Asked(stored(b"x") * 2), "it is not one message"),
        (Asked(stored(b"x", topic="other")), "no consumer of this process reads topic 'other'"),
        (Asked(stored(b"x", topic="%DLQ%g")), "no consumer of this process reads topic ''"),
        (Asked(stored(b"x"), tags=["paid"]), "does not take tag None: paid"),
        (Asked(stored(b"x"), paused=True), "consumer 'c' is paused"),
    ],
)
def test_what_cannot_run_is_answered_at_once(asked: Asked, why: str) -> None:
    """In words; nothing is delivered, and the connection stays."""
    outcome, remark = asked.said()
    assert outcome == "CR_THROW_EXCEPTION"
    assert why in remark
    assert asked.delivered == []
