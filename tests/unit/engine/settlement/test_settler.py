"""Tests of how verdicts become settlements."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncemq.common.error_text import MAX_ERROR_TEXT
from oncemq.contracts.adapter import SettleFailed
from oncemq.contracts.verdict import (
    DUPLICATE,
    PARKED,
    PROCEED,
    RETURNED,
    conflict,
    defer,
    reject,
    retry,
    stale,
)
from oncemq.engine.base.error_verdicts import CRASHED, EXHAUSTED
from oncemq.errors import BrokerRefused, Reject, Undecodable
from oncemq.message import headers
from oncemq.message.envelope import Envelope
from support.benches.settler import PUBLISHED, Desk, desk

__all__ = ["desk"]


NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("verdict", [PROCEED, DUPLICATE, PARKED, stale("late")])
def test_final_and_parked_messages_are_acknowledged(desk: Desk, verdict: Any) -> None:
    """What has been applied, or need not be, is acknowledged."""
    delivery = desk.delivery()
    desk.settle((delivery, verdict))
    assert desk.adapter.acknowledged == [delivery]


@pytest.mark.parametrize("verdict", [RETURNED, defer(timedelta(seconds=1))])
def test_what_the_worker_keeps_is_not_settled(desk: Desk, verdict: Any) -> None:
    """A message that goes back to its queue in this process is unknown to the broker."""
    desk.settle((desk.delivery(), verdict))
    assert desk.adapter.summary() == "0 acknowledged, 0 retried, 0 dead, 0 given back, 0 refused"


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(reject("no"), "rejected"), (conflict("other"), "conflict"), (reject("?", code="no-key"), "no-key")],
)
def test_a_verdict_against_a_message_buries_it_at_once(desk: Desk, verdict: Any, code: str) -> None:
    """Reject and Conflict are dead-lettered with their reason, whatever attempts are left."""
    desk.settle((desk.delivery(), verdict))
    [dead] = desk.adapter.dead
    assert dead.headers[headers.REASON] == code


def test_retry_carries_the_next_attempt_and_the_cause(desk: Desk) -> None:
    """A retry says which try it will be, when and why the last one failed, and where it came from."""
    error = ValueError("bad")
    desk.settle((desk.delivery(), retry("ValueError: bad", error=error)))
    [later] = desk.adapter.retried
    assert dict(later.headers) == {
        headers.ATTEMPT: "2",
        headers.CONSUMER: "points",
        headers.ORIGIN_TOPIC: "orders",
        headers.PUBLISHED_AT: PUBLISHED.isoformat(),
        headers.FIRST_FAILED_AT: NOW.isoformat(),
        headers.LAST_FAILED_AT: NOW.isoformat(),
        headers.ERROR_CLASS: "ValueError",
        headers.ERROR_TEXT: "ValueError: bad",
    }


def test_first_failure_publication_and_origin_survive_every_hop(desk: Desk) -> None:
    """A second failure keeps what the first one wrote, and only the last failure moves."""
    first = NOW - timedelta(hours=1)
    delivery = desk.delivery(
        attempt=2, first_failed_at=first, headers={headers.ORIGIN_TOPIC: "orders-of-old"}
    )
    desk.settle((delivery, retry("again")))
    [later] = desk.adapter.retried
    assert later.headers[headers.FIRST_FAILED_AT] == first.isoformat()
    assert later.headers[headers.LAST_FAILED_AT] == NOW.isoformat()
    assert later.headers[headers.PUBLISHED_AT] == PUBLISHED.isoformat()
    assert later.headers[headers.ORIGIN_TOPIC] == "orders-of-old"
    assert later.headers[headers.ATTEMPT] == "3"


def test_retry_waits_as_the_policy_says(desk: Desk) -> None:
    """Without a wish of the handler's, the pause grows from attempt to attempt."""
    desk.settle((desk.delivery(attempt=1), retry("a")), (desk.delivery(attempt=2), retry("b")))
    assert [later.delay for later in desk.adapter.retried] == [timedelta(seconds=1), timedelta(seconds=2)]


def test_retry_waits_as_the_handler_says(desk: Desk) -> None:
    """`raise Retry(after=…)` overrules the policy's pause."""
    desk.settle((desk.delivery(), retry("later", after=timedelta(minutes=7))))
    assert desk.adapter.retried[0].delay == timedelta(minutes=7)


def test_last_attempt_ends_as_a_dead_letter(desk: Desk) -> None:
    """The third of three tries is not followed by a fourth."""
    desk.settle((desk.delivery(attempt=3), retry("ValueError: bad", error=ValueError("bad"))))
    [dead] = desk.adapter.dead
    assert dead.headers[headers.REASON] == EXHAUSTED
    assert dead.headers[headers.ATTEMPT] == "3"
    assert dead.headers[headers.ERROR_CLASS] == "ValueError"
    assert not desk.adapter.retried


def test_attempt_before_the_last_is_retried(desk: Desk) -> None:
    """The second of three tries is followed by a third."""
    desk.settle((desk.delivery(attempt=2), retry("bad")))
    assert len(desk.adapter.retried) == 1


def test_crashes_count_as_attempts(desk: Desk) -> None:
    """A message that two processes died on fails for the third and last time."""
    delivery = desk.delivery()
    delivery.crashes = 2
    desk.settle((delivery, retry("bad")))
    [dead] = desk.adapter.dead
    assert (dead.headers[headers.REASON], dead.headers[headers.ATTEMPT]) == (EXHAUSTED, "3")


def test_a_message_buried_unrun_counts_its_crashes_only(desk: Desk) -> None:
    """Three processes died on it, so it was tried three times and not four."""
    delivery = desk.delivery()
    delivery.crashes = 3
    desk.settle((delivery, reject("a process died 3 times", code=CRASHED)))
    assert desk.adapter.dead[0].headers[headers.ATTEMPT] == "3"


def test_a_refused_message_is_buried_without_a_key(desk: Desk) -> None:
    """No key is invented for a message that has none; class and text of the error are kept."""
    error = Undecodable("not JSON")
    desk.settle((desk.delivery(b"{"), reject("not JSON", error=error, code=error.reason)))
    [dead] = desk.adapter.dead
    assert headers.KEY not in dead.headers
    assert dead.headers[headers.ERROR_CLASS] == "Undecodable"
    assert dead.headers[headers.ERROR_TEXT] == "not JSON"
    assert dead.delivery.message.body == b"{"


def test_error_text_is_cut(desk: Desk) -> None:
    """An error of any length fits into a header."""
    desk.settle((desk.delivery(), reject("x" * 100_000, error=Reject())))
    assert len(desk.adapter.dead[0].headers[headers.ERROR_TEXT]) == MAX_ERROR_TEXT


def test_a_retry_later_than_records_are_kept_is_refused_in_words(desk: Desk) -> None:
    """A copy would take effect again; so it comes again as the policy says, and the attempt tells why."""
    desk.settle((desk.delivery(), retry("later", after=timedelta(days=8))))
    [later] = desk.adapter.retried
    assert later.delay == timedelta(seconds=1)
    assert "later than records are kept (7d)" in later.headers[headers.ERROR_TEXT]


def test_a_retry_for_which_the_broker_holds_nothing_comes_as_the_policy_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no reason for a dead letter, and holds up no other retry."""
    send = desk.adapter.retry

    def retry_all(later: Any) -> Any:
        long = [request for request in later if request.delay > timedelta(days=3)]
        answers = send([request for request in later if request not in long])
        return [*answers, *(SettleFailed(far.delivery, BrokerRefused("three days at most")) for far in long)]

    monkeypatch.setattr(desk.adapter, "retry", retry_all)
    asked, other = desk.delivery(), desk.delivery()
    desk.settle((asked, retry("later", after=timedelta(days=4))), (other, retry("again")))
    assert {later.delivery for later in desk.adapter.retried} == {asked, other}
    [later] = [later for later in desk.adapter.retried if later.delivery is asked]
    assert later.delay == timedelta(seconds=1)
    assert "holds no message for so long" in later.headers[headers.ERROR_TEXT]
    assert not desk.adapter.dead


@pytest.mark.parametrize("delay", [1, "soon", float("nan"), timedelta(days=-1), timedelta.max])
def test_a_delay_of_a_strategy_that_cannot_be_used_is_that_messages_failure(desk: Desk, delay: Any) -> None:
    """Seconds are understood; anything else follows the policy, and says what was wrong."""
    desk.settle((desk.delivery(), retry("later", after=delay)))
    [later] = desk.adapter.retried
    assert later.delay == timedelta(seconds=1)
    assert (later.headers[headers.ERROR_CLASS] == "ValueError") == (delay != 1)


@pytest.mark.parametrize("hostile", ["lone \udcff", "NUL \0", "escape \x1b[2J", None])
def test_a_reason_is_clean_text_in_every_header(desk: Desk, hostile: Any) -> None:
    """What no broker or database keeps never reaches them."""
    verdict = reject("x", error=ValueError("x"))
    verdict.reason = hostile
    desk.settle((desk.delivery(), verdict))
    text = desk.adapter.dead[0].headers[headers.ERROR_TEXT]
    assert text.encode()
    assert text.isprintable()


def test_a_delivery_that_becomes_void_meanwhile_is_dropped_quietly() -> None:
    """Once the connection is lost the broker delivers again, so no one insists and no one is alarmed."""
    desk = Desk(sleep=lambda _seconds: desk.adapter.lose_connection())
    desk.adapter.fail_next("retry")
    desk.settle((desk.delivery(), retry("bad")))
    assert not desk.adapter.retried
    assert not desk.heard.of("retried")
    assert len(desk.heard.of("settle_failed")) == 1


def test_a_void_delivery_is_no_trouble(desk: Desk) -> None:
    """Acknowledging what was lost with its connection is expected, and not told."""
    delivery = desk.delivery()
    desk.adapter.lose_connection()
    desk.settle((delivery, PROCEED))
    assert not desk.adapter.acknowledged
    assert not desk.heard.of("settle_failed")


def test_a_second_settlement_surfaces(desk: Desk) -> None:
    """A delivery that is settled twice is told, once, and not tried again."""
    delivery = desk.delivery()
    desk.settle((delivery, PROCEED))
    desk.settle((delivery, PROCEED))
    [told] = desk.heard.of("settle_failed")
    assert "settled before" in str(told.arguments[2])
    assert not desk.slept


def test_a_leaving_process_stops_asking(desk: Desk) -> None:
    """With the broker away at the end of a drain, the message stays unsettled, and that is told."""
    desk.leaving = True
    desk.adapter.fail_next("retry", times=99)
    desk.settle((desk.delivery(), retry("bad")))
    assert not desk.adapter.retried
    assert len(desk.heard.of("settle_failed")) == 1
    assert not desk.heard.of("retried")


def test_a_dead_letter_is_noted_only_when_it_is_safe(desk: Desk) -> None:
    """History and observers learn of a dead letter after the broker has it."""
    desk.leaving = True
    desk.adapter.fail_next("dead_letter", times=99)
    desk.settle((desk.delivery(), reject("no")))
    assert not desk.noted
    assert not desk.heard.of("dead_lettered")


def test_a_safe_dead_letter_is_noted(desk: Desk) -> None:
    """The note has the code and the reason."""
    delivery = desk.delivery()
    desk.settle((delivery, reject("no", code="invalid")))
    assert desk.noted == [(delivery, "invalid", "no")]
    assert desk.heard.of("dead_lettered")[0].fields["code"] == "invalid"


def test_a_try_is_noted_when_its_retry_is_safe(desk: Desk) -> None:
    """With its reason; a retry that the broker refuses is no try that comes again."""
    delivery = desk.delivery()
    desk.settle((delivery, retry("no such user")))
    assert desk.tried == [(delivery, "retry", "no such user")]
    assert desk.noted == []


def test_a_stale_message_is_told(desk: Desk) -> None:
    """A message that came too late is acknowledged, and someone hears why."""
    delivery = desk.delivery()
    desk.settle((delivery, stale("paid after shipped")), (desk.delivery(), PROCEED))
    [told] = desk.heard.of("stale")
    assert (told.arguments, told.fields) == (("points", delivery), {"reason": "paid after shipped"})


def test_the_points_of_settling_are_passed_in_order(desk: Desk) -> None:
    """Anyone who wants to kill the process between the steps can."""
    desk.settle((desk.delivery(), PROCEED), (desk.delivery(), retry("bad")), (desk.delivery(), reject("no")))
    assert desk.passed == ["before-ack", "ack-sent", "retry-published", "dead-letter-published"]


def test_a_deferred_message_is_kept_for_thirty_seconds(desk: Desk) -> None:
    """Before that it stays in this process, afterwards the broker gets it back."""
    delivery = desk.delivery()
    assert not desk.settler.held_too_long(delivery)
    desk.clock.advance(timedelta(seconds=30))
    assert not desk.settler.held_too_long(delivery)
    desk.clock.advance(timedelta(seconds=1))
    assert desk.settler.held_too_long(delivery)


def test_what_is_put_off_costs_no_attempt(desk: Desk) -> None:
    """The broker gets a deferred message back with the attempt it had, and no cause."""
    desk.settler.put_off([(desk.delivery(attempt=2), timedelta(seconds=5))])
    [later] = desk.adapter.retried
    assert later.delay == timedelta(seconds=5)
    assert later.headers[headers.ATTEMPT] == "2"
    assert headers.ERROR_CLASS not in later.headers
    assert headers.FIRST_FAILED_AT not in later.headers


def test_unstarted_deliveries_go_back(desk: Desk) -> None:
    """What never ran is given back; what is void among it is no trouble."""
    void = desk.delivery()
    desk.adapter.lose_connection()
    fine = desk.delivery()
    desk.settler.hand_back([void, fine])
    assert desk.adapter.given_back == [fine]
    assert not desk.heard.of("settle_failed")


def test_nothing_to_hand_back_asks_no_broker(desk: Desk) -> None:
    """An empty queue costs no call."""
    desk.adapter.fail_next("give_back")
    desk.settler.hand_back([])
    assert not desk.adapter.refused


def test_the_key_travels_with_an_understood_message(desk: Desk) -> None:
    """Retries and dead letters can be found by key."""
    delivery = desk.delivery()
    delivery.envelope = Envelope("main", "orders", "loyalty", "k", None, "k", None, 1, {}, b"", None)
    desk.settle((delivery, retry("bad")))
    assert desk.adapter.retried[0].headers[headers.KEY] == "k"


def test_a_dead_letter_carries_the_handlers_traceback(desk: Desk) -> None:
    """The last traceback, from the handler on, goes with the letter; values of rows that a database quotes do not."""
    card = "4111111111111111"
    refused = ValueError(f"no\nDETAIL:  Key (card)=({card}) already exists.")
    try:
        raise refused
    except ValueError as error:
        desk.settle((desk.delivery(attempt=3), retry("again", error=error)))
    [dead] = desk.adapter.dead
    trace = dead.headers[headers.TRACEBACK]
    assert trace.startswith("Traceback (most recent call last):")
    assert "test_a_dead_letter_carries_the_handlers_traceback" in trace
    assert "4111111111111111" not in trace
