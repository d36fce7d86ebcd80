"""What may run beside messages that hold their keys."""

from datetime import timedelta

from oncemq.contracts.verdict import DUPLICATE, RETURNED, defer
from oncemq.engine.base.items import may_run
from oncemq.message.envelope import Delivery, Message

LATER = defer(timedelta(seconds=1), "locked")


def deliveries(*keys: str) -> list[Delivery]:
    """Return one delivery for each key, in this order."""
    made = [Delivery(Message("orders", b"x"), None, 1) for _ in keys]
    for delivery, key in zip(made, keys, strict=True):
        delivery.key = key
    return made


def test_everything_may_run_while_nothing_is_decided() -> None:
    """No key is held, and the order stays."""
    some = deliveries("a", "b", "a")
    assert may_run(some, {}) == (some, {})


def test_what_follows_a_deferred_message_of_its_key_is_returned() -> None:
    """What came before it, and other keys, may run."""
    first, deferred, other, behind = deliveries("a", "a", "b", "a")
    assert may_run([first, deferred, other, behind], {deferred: LATER}) == (
        [first, other],
        {deferred: LATER, behind: RETURNED},
    )


def test_a_finished_message_holds_nothing() -> None:
    """The next one of its key may run."""
    copy, following = deliveries("a", "a")
    assert may_run([copy, following], {copy: DUPLICATE}) == ([following], {copy: DUPLICATE})


def test_what_was_decided_behind_a_held_key_is_returned() -> None:
    """It is decided again in its turn: its predecessor may change the answer."""
    deferred, copy = deliveries("a", "a")
    assert may_run([deferred, copy], {deferred: LATER, copy: DUPLICATE})[1] == {
        deferred: LATER,
        copy: RETURNED,
    }


def test_a_key_may_be_held_from_the_start() -> None:
    """By a message of an earlier unit."""
    behind, other = deliveries("a", "b")
    assert may_run([behind, other], {}, {"a"}) == ([other], {behind: RETURNED})
