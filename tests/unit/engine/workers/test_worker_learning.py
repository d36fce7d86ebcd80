"""What a unit teaches about the size of the next one."""

from oncemq.contracts.verdict import DUPLICATE, PROCEED, RETURNED, Verdict, reject, retry
from oncemq.engine.workers.worker import cut_short
from oncemq.message.envelope import Delivery, Message


def unit(*outcomes: tuple[str, Verdict]) -> list[tuple[Delivery, Verdict]]:
    """Return deliveries of these keys with these verdicts."""
    pairs = []
    for key, verdict in outcomes:
        delivery = Delivery(Message("orders", b""))
        delivery.key = key
        pairs.append((delivery, verdict))
    return pairs


def test_what_was_returned_for_lack_of_time_was_cut() -> None:
    """Messages behind the end of the time budget count, whatever their key."""
    assert cut_short(unit(("a", PROCEED), ("b", RETURNED), ("a", RETURNED))) == 2


def test_what_waits_behind_a_failure_was_not_cut() -> None:
    """A key's messages that wait for its retry say nothing about time."""
    assert cut_short(unit(("a", retry("bad")), ("b", PROCEED), ("a", RETURNED), ("a", RETURNED))) == 0


def test_behind_a_reject_it_was_time() -> None:
    """A dead letter holds nothing up, so what did not run behind it had no time."""
    assert cut_short(unit(("a", reject("no")), ("a", RETURNED))) == 1


def test_a_unit_that_ran_to_its_end_was_not_cut() -> None:
    """Duplicates are done too."""
    assert cut_short(unit(("a", PROCEED), ("a", DUPLICATE))) == 0
