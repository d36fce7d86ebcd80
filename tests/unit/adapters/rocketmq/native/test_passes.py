"""A callback returns without asking for exactly that message which its parent has finished, and for no other."""

from threading import Lock

import pytest

from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.librocketmq.passes import REPORTED, Passes

MESSAGE: Identity = ("orders", 3, 17, 1_700_000_000_000, "7F000001")


def _blocks(waited_for: "Lock | None") -> bool:
    return waited_for is not None and not waited_for.acquire(blocking=False)


def test_finished_message_passes() -> None:
    """What was finished before its callback came needs no waiting."""
    passes = Passes()
    passes.finish([(MESSAGE, 0)])
    assert passes.enter(MESSAGE) is None


def test_unfinished_message_waits_until_it_is_finished() -> None:
    """A callback without a pass waits, and goes on when its message is finished."""
    passes = Passes()
    waited_for = passes.enter(MESSAGE)
    assert _blocks(waited_for)
    passes.finish([(MESSAGE, 0)])
    assert not _blocks(waited_for)


@pytest.mark.parametrize(
    "other",
    [
        ("payments", 3, 17, 1_700_000_000_000, "7F000001"),
        ("", 3, 17, 1_700_000_000_000, "7F000001"),
        ("orders", 4, 17, 1_700_000_000_000, "7F000001"),
        ("orders", 3, 18, 1_700_000_000_000, "7F000001"),
        ("orders", 3, 17, 1_700_000_000_001, "7F000001"),
        ("orders", 3, 17, 1_700_000_000_000, "7F000002"),
    ],
)
def test_pass_is_for_one_message_alone(other: Identity) -> None:
    """A retry, or another broker's message at the same offset of a queue of the same number, does not pass for it."""
    passes = Passes()
    passes.finish([(MESSAGE, 0)])
    assert _blocks(passes.enter(other))


def test_pass_is_good_for_one_callback() -> None:
    """When a message comes once more, the parent is asked once more."""
    passes = Passes()
    passes.finish([(MESSAGE, 0)])
    passes.enter(MESSAGE)
    assert _blocks(passes.enter(MESSAGE))


def test_word_that_frees_a_callback_leaves_no_pass() -> None:
    """Anyone who waited has used it up."""
    passes = Passes()
    passes.enter(MESSAGE)
    passes.finish([(MESSAGE, 0)])
    assert _blocks(passes.enter(MESSAGE))


def test_answer_is_no_pass() -> None:
    """An answer that comes when no one waits any more lets nothing through later."""
    passes = Passes()
    passes.answer(MESSAGE)
    waited_for = passes.enter(MESSAGE)
    assert _blocks(waited_for)
    passes.answer(MESSAGE)
    assert not _blocks(waited_for)


def test_all_callbacks_of_a_message_go_on() -> None:
    """A queue that went and came back has two callbacks of one message; neither thread is lost."""
    passes = Passes()
    waiting = [passes.enter(MESSAGE) for _ in range(2)]
    passes.finish([(MESSAGE, 0)])
    for waited_for in waiting:
        assert waited_for is not None
        assert waited_for.acquire(timeout=1)
        waited_for.release()


def test_message_without_an_id_never_passes_ahead() -> None:
    """Two brokers' messages without ids could be taken for each other, so their callbacks ask."""
    passes = Passes()
    nameless: Identity = ("orders", 3, 17, 1_700_000_000_000, "")
    passes.finish([(nameless, 0)])
    waited_for = passes.enter(nameless)
    assert _blocks(waited_for)
    passes.finish([(nameless, 0)])
    assert not _blocks(waited_for)


def test_passes_whose_callbacks_never_come_take_bounded_memory() -> None:
    """When a queue is taken away its passes stay; the oldest are forgotten, and their callbacks would ask."""
    passes = Passes(half=100)
    identities: list[Identity] = [("orders", 0, offset, 1, "id") for offset in range(1000)]
    passes.finish((identity, 0) for identity in identities)
    assert len(passes._passes) <= 200
    assert _blocks(passes.enter(identities[0]))
    assert passes.enter(identities[-1]) is None


def test_parent_is_told_how_far_callbacks_have_come() -> None:
    """After some passes the highest offset of each queue is reported, once."""
    passes = Passes()
    for queue in (0, 1):
        for offset in reversed(range(REPORTED // 2)):
            identity: Identity = ("orders", 0, offset, queue, "id")
            passes.finish([(identity, queue)])
            assert passes.report() == {}
            passes.enter(identity)
    assert passes.report() == {0: REPORTED // 2 - 1, 1: REPORTED // 2 - 1}
    assert passes.report() == {}
