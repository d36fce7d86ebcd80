"""Publishing: only what a broker has confirmed counts, and a refusal is of the message that was refused."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQError, RocketMQRefused, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.producer.producer import Producer
from oncemq_adapters.rocketmq_client.protocol.connection import Request
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing


class Silent:
    """Brokers whose one connection takes everything, answers nothing and is in no list."""

    version = 0

    def get(self, _name: str) -> "Silent":
        """Return the connection."""
        return self

    def alive(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def submit_all(self, _requests: Sequence[Any]) -> None:
        """Take them."""


def producer_to(brokers: Any, limit: timedelta = timedelta(seconds=5)) -> Producer:
    """Return a producer that knows no routes, for messages that have a place."""
    unused: Any = None
    return Producer(brokers, unused, "g", limit)


def test_a_message_without_an_answer_is_not_confirmed() -> None:
    """Whatever became of the connection: the original must not be acknowledged."""
    [error] = producer_to(Silent(), timedelta(milliseconds=10)).send([Outgoing("t", b"x", {}, ("b", 0))])
    assert isinstance(error, RocketMQUnavailable)


class Picky(Silent):
    """A broker that refuses what holds certain bodies, as a whole, and says no more than that.

    Attributes:
        refuses: codes by the body that is refused.
        stored: bodies by queue, in order.
        asked: how many requests came.
    """

    def __init__(self, **refuses: int) -> None:
        self.refuses = {body.encode(): code for body, code in refuses.items()}
        self.stored: dict[str, list[bytes]] = {}
        self.asked = 0

    def submit_all(self, requests: Sequence[Request]) -> None:
        """Answer at once."""
        for code, fields, body, done in requests:
            self.asked += 1
            bodies = list(_unpacked(body)) if code == codes.SEND_BATCH else [body]
            culprit = next((body for body in bodies if body in self.refuses), None)
            wrong = codes.SUCCESS if culprit is None else self.refuses[culprit]
            if culprit is None:
                self.stored.setdefault(fields["e"], []).extend(bodies)
            elif wrong in codes.BUSY:
                del self.refuses[culprit]  # the next time it is not
            assert done is not None
            done(Denied("b", wrong, "no", {}) if wrong else None, {}, b"")


def _unpacked(batch: bytes) -> Any:
    at = 0
    while at < len(batch):
        size, *_, length = struct.unpack_from(">iiiii", batch, at)
        yield batch[at + 20 : at + 20 + length]
        at += size


def message(body: str, key: str | None = None, queue: int = 0) -> Outgoing:
    """Return a message; one with a key keeps its place."""
    return Outgoing("t", body.encode(), {}, ("b", queue), ordered=key is not None, key=key)


def refused(errors: Sequence[RocketMQError | None]) -> list[int]:
    """Return which messages have an error."""
    return [at for at, error in enumerate(errors) if error is not None]


@pytest.mark.parametrize("code", [codes.ILLEGAL_MESSAGE, 1])
def test_a_refused_message_is_refused_alone(code: int) -> None:
    """Neither its neighbours in a batch nor those behind it in their queue share its fate."""
    broker = Picky(bad=code)
    bodies = ["a", "b", "bad", "c", "d", "e"]
    errors = producer_to(broker).send([message(body, key=f"key {body}") for body in bodies])
    assert refused(errors) == [2]
    assert broker.stored == {"0": [b"a", b"b", b"c", b"d", b"e"]}


def test_what_cannot_travel_with_others_is_refused_alone() -> None:
    """A message with a delay is a request of its own; those behind it in the queue are sent all the same."""
    broker = Picky(bad=codes.ILLEGAL_MESSAGE)
    bad = message("bad", key="k")
    bad.delay = timedelta(seconds=1)
    errors = producer_to(broker).send([message("a", key="a"), bad, message("c", key="c")])
    assert refused(errors) == [1]
    assert broker.stored == {"0": [b"a", b"c"]}


def test_nothing_overtakes_a_refused_message_of_its_key() -> None:
    """Later ones of the key are not sent, and their answers say why; other keys, and other topics' same, go on."""
    broker = Picky(bad=codes.ILLEGAL_MESSAGE)
    elsewhere = message("f", key="k")
    elsewhere.topic = "u"
    sent = [message("a", key="k"), message("bad", key="k"), message("c", key="l"), message("d", key="k")]
    errors = producer_to(broker).send([*sent, elsewhere])
    assert refused(errors) == [1, 3]
    assert isinstance(errors[3], RocketMQRefused)
    assert "overtake" in str(errors[3])
    assert sorted(broker.stored["0"]) == [b"a", b"c", b"f"]


def test_a_refusal_is_remembered_while_others_are_tried_again() -> None:
    """Behind a message that its broker was too busy for nothing is forgotten."""
    broker = Picky(bad=codes.ILLEGAL_MESSAGE, busy=codes.FLOW_CONTROL)
    sent = [message("bad", key="k"), message("busy", key="l"), message("c", key="k"), message("d", key="l")]
    errors = producer_to(broker).send(sent)
    assert refused(errors) == [0, 2]
    assert broker.stored == {"0": [b"busy", b"d"]}


def test_a_place_that_takes_nothing_is_asked_once() -> None:
    """What a broker says about topic or account is true of everything that waits."""
    broker = Picky(a=codes.NO_PERMISSION)
    first = message("a", key="a")
    first.delay = timedelta(seconds=1)
    errors = producer_to(broker).send([first, *[message(str(number), key="b") for number in range(9)]])
    assert refused(errors) == list(range(10))
    assert broker.asked == 1


def test_refusals_without_keys_hold_up_no_other() -> None:
    """Who depends on no order is asked for alone."""
    broker = Picky(bad=codes.ILLEGAL_MESSAGE)
    errors = producer_to(broker).send([message("bad"), message("bad"), message("c")])
    assert refused(errors) == [0, 1]
    assert broker.stored == {"0": [b"c"]}
