"""A proxy that breaks off while it delivers: what came before counts, and why it ended is known."""

import pytest
from rocketmq.grpc_protocol import Code
from rocketmq.grpc_protocol.service_pb2 import ReceiveMessageResponse

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.grpc.errors import FAILED_INSIDE, ProxyUnable
from oncemq_adapters.rocketmq.grpc.requests import consumed


def message() -> ReceiveMessageResponse:
    """Return a part with a message."""
    part = ReceiveMessageResponse()
    part.message.body = b"x"
    return part


def status(code: int) -> ReceiveMessageResponse:
    """Return a part with a status."""
    part = ReceiveMessageResponse()
    part.status.code = code
    part.status.message = "the reason"
    return part


def test_error_behind_messages_is_known() -> None:
    """The messages are delivered, and the status that follows them is not swallowed."""
    found = consumed([message(), status(Code.INTERNAL_SERVER_ERROR)], None)
    assert len(found.messages) == 1
    assert "the reason" in str(found.broken_off)


def test_stream_that_breaks_behind_messages_is_known() -> None:
    """An error of the stream takes nothing away that came before it."""
    broken = ValueError("broken")
    assert consumed([message()], None, broken) == ([(message().message, None)], broken)


def test_error_without_messages_is_raised() -> None:
    """There is nothing to be delivered, so the receive has failed."""
    with pytest.raises(BrokerUnavailable, match="the reason"):
        consumed([status(Code.INTERNAL_SERVER_ERROR)], None)
    with pytest.raises(ValueError, match="broken"):
        consumed([], None, ValueError("broken"))


def test_end_of_the_queue_is_no_error() -> None:
    """Nothing there now, or all that there was."""
    assert consumed([status(Code.MESSAGE_NOT_FOUND)], None) == ([], None)
    assert consumed([message(), status(Code.OK)], None).broken_off is None


def test_only_an_exception_at_a_message_is_about_one() -> None:
    """A proxy that has not our settings yet fails in the same way, before it looks at any message."""
    texts = {'"settings" is null': False, "Timestamp is not valid. IllegalArgumentException": True}
    assert {text: ProxyUnable(FAILED_INSIDE, text).about_a_message for text in texts} == texts
    assert not ProxyUnable(50400, "time-out").about_a_message
