"""One connection: what is answered together is handled together, and what comes before nonsense is not lost with it."""

from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import RocketMQError
from oncemq_adapters.rocketmq_client.protocol import connection
from oncemq_adapters.rocketmq_client.protocol.connection import (
    DEFERRED,
    Connection,
    OnRequest,
)
from oncemq_adapters.rocketmq_client.protocol.frames import (
    OUR_VERSION,
    FrameReader,
    encode,
)

WITHIN = 5.0


class Peer:
    """A stream whose other end a test plays."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.codes: list[int] = []
        self._come: SimpleQueue[bytes] = SimpleQueue()

    def says(self, *parts: bytes) -> None:
        """Have these parts arrive together."""
        self._come.put(b"".join(parts))

    def send(self, data: bytes) -> None:
        """Note which requests were sent together."""
        frames = list(FrameReader().feed(data))
        self.codes += [frame.code for frame in frames]
        self.sent.append([frame.opaque for frame in frames])

    def receive(self) -> bytes:
        """Wait for what the test says."""
        return self._come.get()

    def shut(self) -> None:
        """End."""
        self._come.put(b"")

    def release(self) -> None:
        """Give back nothing."""


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    """Return the peer of the next connection."""
    made = Peer()
    monkeypatch.setattr(connection, "connect", lambda *_: made)
    return made


def answer(number: int) -> bytes:
    """Return the answer to a request."""
    return encode(codes.SUCCESS, number, {}, b"", codes.ANSWER)


def connected(on_request: OnRequest | None = None) -> Connection:
    """Return a connection to the peer."""
    return Connection(parse_address("rocketmq://localhost", {}), "localhost:1", "the broker", on_request)


def question(number: int, flag: int = 0) -> bytes:
    """Return a request of the peer that is unknown here."""
    return encode(9999, number, {}, b"", flag)


def test_requests_that_answers_cause_go_out_together(peer: Peer) -> None:
    """Three answers that have come at once cause three requests: these are sent as one."""
    opened, handled = connected(), Event()
    for _ in range(3):
        opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: opened.submit(codes.PULL_MESSAGE, {}))
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: handled.set())
    peer.says(answer(1), answer(2), answer(3))
    peer.says(answer(4))
    assert handled.wait(WITHIN)
    assert peer.sent == [[1], [2], [3], [4], [5, 6, 7]]
    opened.close()


def test_nothing_stays_behind_where_the_last_answer_asks_for_nothing(peer: Peer) -> None:
    """What earlier answers caused is sent when all that came together is handled."""
    opened, handled = connected(), Event()
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: opened.submit(codes.PULL_MESSAGE, {}))
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: None)
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: handled.set())
    peer.says(answer(1), answer(2))
    peer.says(answer(3))
    assert handled.wait(WITHIN)
    assert peer.sent == [[1], [2], [3], [4]]
    opened.close()


def test_an_answer_before_nonsense_counts(peer: Peer) -> None:
    """It came whole; only what waits for more fails with the connection."""
    opened, failed = connected(), Event()
    errors: list[RocketMQError | None] = []

    def told(error: RocketMQError | None, *_: Any) -> None:
        errors.append(error)
        if error is not None:
            failed.set()

    opened.submit(codes.PULL_MESSAGE, {}, done=told)
    opened.submit(codes.PULL_MESSAGE, {}, done=told)
    peer.says(answer(1), b"\0" * 8)
    assert failed.wait(WITHIN)
    assert errors[0] is None
    assert isinstance(errors[1], RocketMQError)


def test_a_relayed_answer_does_not_change_the_version_of_the_broker(peer: Peer) -> None:
    """The first answer tells the version; later ones may be those of group members, which a broker passes on."""
    opened, handled = connected(), Event()
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: None)
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: handled.set())
    peer.says(answer(1).replace(str(OUR_VERSION).encode(), b"459"), answer(2))
    assert handled.wait(WITHIN)
    assert opened.version == 459
    opened.close()


@pytest.mark.parametrize("on_request", [None, lambda _frame: None])
def test_an_unknown_request_is_answered_as_not_supported(peer: Peer, on_request: OnRequest | None) -> None:
    """At once, so that the broker's caller does not wait; one that wants no answer gets none."""
    opened, handled = connected(on_request), Event()
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: handled.set())
    peer.says(question(70, codes.ONE_WAY), question(71))
    peer.says(answer(1))
    assert handled.wait(WITHIN)
    assert peer.sent == [[1], [71]]
    assert peer.codes == [codes.PULL_MESSAGE, codes.NOT_SUPPORTED]
    opened.close()


def test_an_answer_that_follows_is_not_given_before(peer: Peer) -> None:
    """The handler of the request sends it, from whichever thread."""
    opened, handled = connected(lambda _frame: DEFERRED), Event()
    opened.submit(codes.PULL_MESSAGE, {}, done=lambda *_: handled.set())
    peer.says(question(70))
    peer.says(answer(1))
    assert handled.wait(WITHIN)
    assert peer.sent == [[1]]
    opened.answer(70, b"done")
    assert (peer.sent, peer.codes[1:]) == ([[1], [70]], [codes.SUCCESS])
    opened.close()
