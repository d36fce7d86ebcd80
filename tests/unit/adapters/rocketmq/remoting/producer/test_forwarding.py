"""Messages that go to the retries when their queue is left."""

from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq.remoting.producer.forwarding import resend
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage


def stored(offset: int) -> StoredMessage:
    """Return a message."""
    return StoredMessage("orders", b"{}", {}, offset, 1, 5, 0, 0)


def test_what_cannot_be_copied_holds_up_no_other() -> None:
    """It stays where it is, like what is not confirmed; the others are safe."""
    messages = [stored(offset) for offset in range(3)]

    def copy(message: StoredMessage) -> Outgoing:
        if message.offset == 0:
            raise BrokerRefused("the headers are too large")
        return Outgoing(f"retries-{message.offset}", b"", {})

    safe = resend(messages, copy, lambda copies: [None, BrokerUnavailable("away")][: len(copies)])
    assert [message.offset for message in safe] == [1]


def test_nothing_is_sent_for_nothing() -> None:
    """No one is asked where there is nothing to say."""
    assert resend([], lambda _: Outgoing("", b"", {}), lambda _: 1 / 0) == []  # type: ignore[return-value,arg-type]
