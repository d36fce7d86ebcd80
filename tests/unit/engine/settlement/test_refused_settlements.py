"""Settlements that fail or are refused: tried again, kept, and never at the cost of another message."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncemq.contracts.adapter import DeadLetterRequest, SettleFailed
from oncemq.contracts.verdict import (
    PROCEED,
    reject,
    retry,
)
from oncemq.engine.settlement.settler import UNSETTLEABLE
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq.message import headers
from oncemq.message.envelope import Delivery
from support.benches.settler import Desk, desk

__all__ = ["desk"]


@pytest.mark.parametrize(
    ("call", "verdict", "record"),
    [
        ("acknowledge", PROCEED, "acknowledged"),
        ("retry", retry("bad"), "retried"),
        ("dead_letter", reject("no"), "dead"),
    ],
)
def test_a_failing_settlement_is_tried_again_until_it_works(
    desk: Desk, call: str, verdict: Any, record: str
) -> None:
    """Four failures of the broker delay a settlement, and change nothing else; each pause is told."""
    desk.adapter.fail_next(call, times=4)
    desk.settle((desk.delivery(), verdict))
    assert len(getattr(desk.adapter, record)) == 1
    assert len(desk.slept) >= 3
    assert len(desk.heard.of("settle_failed")) == len(desk.slept)


def test_only_what_failed_is_settled_again(desk: Desk) -> None:
    """When one of three acknowledgements fails, the two others are not sent a second time."""
    desk.adapter.fail_next("acknowledge")
    desk.settle(*((desk.delivery(), PROCEED) for _ in range(3)))
    assert len(desk.adapter.acknowledged) == 3
    assert len(desk.adapter.refused) == 1


def test_a_broker_that_raises_is_asked_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that raises instead of answering does not end the worker."""
    answers = [BrokerUnavailable("away"), BrokerUnavailable("away")]
    send = desk.adapter.acknowledge

    def acknowledge(deliveries: Any) -> Any:
        if answers:
            raise answers.pop()
        return send(deliveries)

    monkeypatch.setattr(desk.adapter, "acknowledge", acknowledge)
    desk.settle((desk.delivery(), PROCEED))
    assert len(desk.adapter.acknowledged) == 1


def test_an_error_about_one_message_does_not_reach_its_neighbours(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the adapter cannot put into a retry ends as a dead letter; the others come again as they should."""
    bad, good = desk.delivery(b'{"bad": 1}'), desk.delivery()
    send = desk.adapter.retry

    def retry_all(later: Any) -> Any:
        if any(each.delivery is bad for each in later):
            raise OverflowError("date value out of range")
        return send(later)

    monkeypatch.setattr(desk.adapter, "retry", retry_all)
    desk.settle((bad, retry("ValueError: its own")), (good, retry("again")))
    assert [each.delivery for each in desk.adapter.retried] == [good]
    [dead] = desk.adapter.dead
    assert (dead.delivery, dead.headers[headers.REASON]) == (bad, UNSETTLEABLE)
    assert dead.headers[headers.ERROR_TEXT] == "ValueError: its own"


def refusing(desk: Desk, call: str, delivery: Delivery, error: Exception) -> None:
    """Let `call` never settle this delivery."""
    send = getattr(desk.adapter, call)

    def answer(parts: Any) -> Any:
        mine = [part for part in parts if part.delivery is delivery]
        return [
            *send([part for part in parts if part.delivery is not delivery]),
            *(SettleFailed(delivery, error) for _ in mine),
        ]

    setattr(desk.adapter, call, answer)


def test_what_the_broker_refuses_holds_up_no_other(desk: Desk) -> None:
    """After three refusals it is set aside and said; all others are settled, and a broker that is away is no refusal."""
    odd, good = desk.delivery(), desk.delivery()
    refusing(desk, "dead_letter", odd, BrokerRefused("too large"))
    desk.settle((odd, reject("no")), (good, reject("no")))
    assert [dead.delivery for dead in desk.adapter.dead] == [good]
    assert len(desk.slept) == 2
    assert "too large" in str(desk.heard.of("settle_failed")[-1].arguments)


def test_what_no_broker_takes_is_kept(desk: Desk) -> None:
    """A dead letter that is refused goes to the place for these, with its headers, and counts as dead."""
    kept: list[DeadLetterRequest] = []

    def keep(dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        kept.extend(dead)
        return ()

    desk.settler._keep = keep
    odd = desk.delivery()
    refusing(desk, "dead_letter", odd, BrokerRefused("too large"))
    desk.settle((odd, reject("no")))
    assert [(dead.delivery, dead.headers[headers.REASON]) for dead in kept] == [(odd, "rejected")]
    assert [(noted[0], noted[1]) for noted in desk.noted] == [(odd, "rejected")]


def test_a_retry_that_is_refused_becomes_a_dead_letter(desk: Desk) -> None:
    """It cannot come again, so a person has to look; the others are tried again."""
    odd, good = desk.delivery(), desk.delivery()
    refusing(desk, "retry", odd, BrokerRefused("too large"))
    desk.settle((odd, retry("x")), (good, retry("x")))
    assert [later.delivery for later in desk.adapter.retried] == [good]
    assert [(dead.delivery, dead.headers[headers.REASON]) for dead in desk.adapter.dead] == [
        (odd, UNSETTLEABLE)
    ]
