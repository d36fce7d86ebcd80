"""Which messages librocketmq dies of, and when those are done that are handled without it."""

import pytest

from oncemq_adapters.rocketmq.native.crash_bypass import PythonSession, is_fatal
from oncemq_adapters.rocketmq.native.inbox import Held
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

QUEUE = Queue("a", "orders", 0)
COMPRESSED = 1


def _stored(offset: int = 0, trouble: str = "") -> StoredMessage:
    return StoredMessage("orders", b"", {}, offset, 0, 0, 0, 0, trouble)


@pytest.mark.parametrize(
    ("flags", "trouble", "fatal"),
    [
        (0, "", False),
        (0, "its layout cannot be read", False),
        (COMPRESSED, "", False),
        (COMPRESSED | 3 << 8, "", False),
        (COMPRESSED, "the body cannot be unpacked", True),
        (COMPRESSED | 1 << 8, "", True),
        (COMPRESSED | 2 << 8, "", True),
    ],
)
def test_packing_tells_what_the_library_dies_of(flags: int, trouble: str, fatal: bool) -> None:
    """It takes every packed body for zlib; a Python that can unpack LZ4 makes no difference to it."""
    assert is_fatal(_stored(trouble=trouble), flags) is fatal


def test_session_without_a_process_is_done_when_all_is_settled() -> None:
    """It says so once the last message is settled, and remembers the progress for the brokers."""
    progress, told = Progress("group"), []
    session = PythonSession(1, progress, lambda: told.append(session.done))
    held = [Held(session, QUEUE, _stored(offset), None) for offset in (4, 5)]  # type: ignore[arg-type]
    session.hold(held)
    assert session.finish(held[:1])
    session.let_pass(held[:1])
    assert (session.done, told) == (False, [])
    assert session.finish(held[1:])
    session.let_pass(held[1:])
    assert told == [True]
    assert progress.is_settled(QUEUE, 4)


def test_void_session_settles_nothing() -> None:
    """What is settled after the brokers were lost comes again."""
    progress = Progress("group")
    session = PythonSession(1, progress, lambda: None)
    held = Held(session, QUEUE, _stored(), None)  # type: ignore[arg-type]
    session.hold([held])
    session.alive = False
    assert not session.finish([held])
    assert not progress.is_settled(QUEUE, 0)
