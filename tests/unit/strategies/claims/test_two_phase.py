"""`two_phase`: what each end of a handler leaves in the ledger, and what comes of it when the message comes again."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from oncemq import Done, Envelope, NotDone, Reject, Retry, Unknown
from oncemq.common.clock import SystemClock
from oncemq.contracts.verdict import Outcome
from oncemq.errors import InvalidPayload
from oncemq.ledger.purge import CLAIMS, purge
from oncemq.message.stored import from_text
from oncemq.testing.strategy_suite.bench import message
from oncemq_strategies.claims.base import UNKNOWN_EFFECT
from support.benches.two_phase import (
    DEADLINE,
    MakeDirect,
    change,
    fail_once,
    make_direct,
    only,
    raising,
    rows,
)

__all__ = ["make_direct"]


LATER = timedelta(days=400)


# How a handler ends


def test_a_handler_that_returned_is_done(make_direct: MakeDirect) -> None:
    """The claim keeps the result and forgets the message, about which no one will ask."""
    bench = make_direct(handler=lambda body, _session: {"sent": body["id"]})
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    (row,) = rows(bench)
    assert (row.state, row.until, row.envelope) == ("done", None, None)
    assert row.result == '{"sent":"a"}'
    assert row.done_at is not None


def test_a_claim_is_committed_before_the_handler_runs(make_direct: MakeDirect) -> None:
    """While the handler runs everyone can see the claim, with the message that it is about."""
    seen: list[Any] = []
    bench = make_direct()
    bench.handler = lambda _body, _session: seen.extend(rows(bench))
    bench.deliver(message("a", 1))
    (row,) = seen
    assert row.state == "processing"
    assert row.until > SystemClock().now()
    assert from_text(row.envelope).body == message("a", 1).body


@pytest.mark.parametrize("error", [Retry("busy"), Reject("never"), InvalidPayload("no order")])
def test_an_end_without_effect_deletes_the_claim(make_direct: MakeDirect, error: Exception) -> None:
    """Retry, Reject and a payload that never reached the handler say that nothing happened."""
    bench = make_direct(handler=raising(error))
    bench.deliver(message("a", 1))
    assert rows(bench) == []


@pytest.mark.parametrize("error", [RuntimeError("hung up"), SystemExit(3), TimeoutError()])
def test_any_other_exception_leaves_it_unknown(make_direct: MakeDirect, error: BaseException) -> None:
    """The message costs an attempt and comes again; what is known stands with the claim."""
    bench = make_direct(handler=raising(error))
    assert bench.deliver(message("a", 1)) == [Outcome.RETRY]
    (row,) = rows(bench)
    assert row.state == "unknown"
    assert type(error).__name__ in row.reason


@pytest.mark.parametrize("character", ["\0", "\ud800"])
def test_an_error_of_any_text_leaves_it_unknown(make_direct: MakeDirect, character: str) -> None:
    """An exception may quote what no database keeps; that is no reason to stop the consumer."""
    bench = make_direct(handler=raising(ValueError(f"bad name {character}!")))
    assert bench.deliver(message("a", 1)) == [Outcome.RETRY]
    (row,) = rows(bench)
    assert row.state == "unknown"
    assert row.reason.startswith("ValueError: bad name ")
    assert character not in row.reason


# What comes of an unknown one


def test_not_done_runs_again(make_direct: MakeDirect) -> None:
    """`verify` is given the message, and its NotDone – class or instance – lets the handler run."""
    asked: list[Envelope] = []

    def verify(envelope: Envelope) -> type[NotDone]:
        asked.append(envelope)
        return NotDone

    bench = make_direct(verify=verify)
    fail_once(bench)
    assert only(bench).outcome is Outcome.PROCEED
    assert (asked[0].key, asked[0].body) == ("a", message("a", 1).body)
    assert bench.effects() == [("a", 1)]
    assert len(asked) == 1


def test_done_is_a_duplicate_with_its_result(make_direct: MakeDirect) -> None:
    """What `verify` knows of the result is kept like a handler's."""
    bench = make_direct(verify=lambda _envelope: Done({"mail": 7}))
    fail_once(bench)
    duplicate = only(bench)
    assert (duplicate.outcome, duplicate.tier) == (Outcome.DUPLICATE, "database")
    assert bench.effects() == []
    (row,) = rows(bench)
    assert (row.state, row.result) == ("done", '{"mail":7}')


def test_unknown_is_a_dead_letter_for_a_person(make_direct: MakeDirect) -> None:
    """It says so, with both reasons; the claim stays, so a replay asks again."""
    bench = make_direct(verify=lambda _envelope: Unknown("the outbox is gone"))
    fail_once(bench)
    verdict = only(bench)
    assert (verdict.outcome, verdict.code) == (Outcome.REJECT, UNKNOWN_EFFECT)
    assert "an operator must decide" in verdict.reason
    assert "the outbox is gone" in verdict.reason
    assert "the server hung up" in verdict.reason
    assert [row.state for row in rows(bench)] == ["unknown"]
    assert only(bench).code == UNKNOWN_EFFECT


def test_without_verify_nothing_runs_twice(make_direct: MakeDirect) -> None:
    """No one can say, so an operator must decide."""
    bench = make_direct()
    fail_once(bench)
    assert only(bench).code == UNKNOWN_EFFECT
    assert bench.effects() == []


def test_a_verify_that_fails_costs_an_attempt(make_direct: MakeDirect) -> None:
    """It is asked again when the message comes again."""
    answers: list[Any] = [ConnectionError("no way to the outbox"), NotDone()]

    def verify(_envelope: Envelope) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench = make_direct(verify=verify)
    fail_once(bench)
    verdict = only(bench)
    assert verdict.outcome is Outcome.RETRY
    assert "no way to the outbox" in verdict.reason
    assert only(bench).outcome is Outcome.PROCEED


def test_a_verify_may_say_when_to_ask_again(make_direct: MakeDirect) -> None:
    """`raise Retry(after=…)` is for effects that show late."""

    def verify(_envelope: Envelope) -> Any:
        raise Retry("not visible yet", after=timedelta(minutes=3))

    bench = make_direct(verify=verify)
    fail_once(bench)
    assert only(bench).delay == timedelta(minutes=3)


@pytest.mark.parametrize("answer", [True, None, "done"])
def test_an_answer_that_means_nothing_is_none(make_direct: MakeDirect, answer: Any) -> None:
    """True could mean either: the message is not run, and the reason says what to return."""
    bench = make_direct(verify=lambda _envelope: answer)
    fail_once(bench)
    verdict = only(bench)
    assert verdict.outcome is Outcome.RETRY
    assert "must return Done(result), NotDone or Unknown" in verdict.reason


def test_a_verify_may_be_async(make_direct: MakeDirect) -> None:
    """It is run to its end."""

    async def verify(_envelope: Envelope) -> NotDone:
        await asyncio.sleep(0)
        return NotDone()

    bench = make_direct(verify=verify)
    fail_once(bench)
    assert only(bench).outcome is Outcome.PROCEED


# Who holds a claim


def test_a_claim_of_another_process_is_respected(make_direct: MakeDirect) -> None:
    """While it lives the message is put off at no cost, and no one is asked."""
    bench = make_direct(verify=lambda _envelope: pytest.fail("asked about a living claim"))
    fail_once(bench)
    change(bench, state="processing", holder="another", until=SystemClock().now() + timedelta(minutes=1))
    assert only(bench).outcome is Outcome.DEFER


@pytest.mark.parametrize("state", ["processing", "verifying"])
def test_a_claim_whose_lease_is_over_is_verified(make_direct: MakeDirect, state: str) -> None:
    """A process died while it ran the handler, or while it asked: in both cases someone must ask."""
    bench = make_direct(verify=lambda _envelope: Done())
    fail_once(bench)
    change(bench, state=state, holder="another", until=SystemClock().now() - timedelta(seconds=1))
    assert only(bench).outcome is Outcome.DUPLICATE


def test_a_lease_does_not_end_under_a_living_handler(make_direct: MakeDirect) -> None:
    """It is renewed in time; a copy is put off as long as the handler runs."""
    inside, finish = threading.Event(), threading.Event()

    def slow(_body: Any, _session: Session) -> None:
        inside.set()
        finish.wait(DEADLINE)

    first, second = make_direct(handler=slow, lease="1s"), make_direct(verify=lambda _envelope: NotDone())
    worker = threading.Thread(target=first.deliver, args=(message("a", 1),))
    worker.start()
    assert inside.wait(DEADLINE)
    began = rows(first)[0].until
    until = time.monotonic() + DEADLINE
    while rows(first)[0].until < began + timedelta(seconds=1.2) and time.monotonic() < until:
        assert only(second).outcome is Outcome.DEFER
    finish.set()
    worker.join(DEADLINE)
    assert only(second).outcome is Outcome.DUPLICATE


def test_renewing_ends_with_the_last_handler(make_direct: MakeDirect) -> None:
    """No thread stays behind."""
    bench = make_direct(lease="1s")
    bench.deliver(*(message(f"k{number}", 1) for number in range(10)))
    until = time.monotonic() + DEADLINE
    while any(thread.name == "oncemq-claims" for thread in threading.enumerate()):
        assert time.monotonic() < until


def test_an_owner_that_lost_its_claim_changes_nothing(make_direct: MakeDirect) -> None:
    """The other one's claim stays as it is, the message is settled since its effect happened, and someone is told."""
    bench = make_direct()
    bench.handler = lambda _body, _session: change(bench, holder="another")
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    (row,) = rows(bench)
    assert (row.state, row.holder) == ("processing", "another")
    assert "outlived its claim" in str(bench.errors.seen[0][1])


def test_a_failed_owner_that_lost_its_claim_deletes_nothing(make_direct: MakeDirect) -> None:
    """Neither Reject nor an error touches what is another's now."""
    bench = make_direct()

    def handler(body: Any, _session: Session) -> None:
        change(bench, holder="another")
        raise Reject("no") if body["id"] == "a" else RuntimeError("no")

    bench.handler = handler
    bench.deliver(message("a", 1))
    bench.deliver(message("b", 1))
    assert [row.state for row in rows(bench)] == ["processing"] * 2


def test_what_was_never_started_leaves_no_claim(make_direct: MakeDirect) -> None:
    """The key's later messages go back unstarted behind a retry."""
    bench = make_direct(handler=raising(Retry("busy")))
    assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.RETRY, Outcome.RETURNED]
    assert rows(bench) == []


def test_only_what_is_done_grows_old(make_direct: MakeDirect) -> None:
    """Purging deletes done claims; an unknown one waits for its answer, or a replay would run it again."""
    bench = make_direct()
    fail_once(bench)
    bench.deliver(message("b", 1))
    assert purge(bench.engine, CLAIMS, SystemClock().now() + LATER) == 1
    assert [row.state for row in rows(bench)] == ["unknown"]


# Copies and content


def test_other_content_is_a_conflict(make_direct: MakeDirect) -> None:
    """Also while the first one is in doubt; no one is asked then."""
    bench = make_direct(fingerprint=["body.amount"], verify=lambda _envelope: NotDone())
    fail_once(bench)
    assert bench.deliver(message("a", 1, amount=9)) == [Outcome.CONFLICT]
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    assert bench.deliver(message("a", 1, amount=9)) == [Outcome.CONFLICT]


def test_a_result_that_cannot_be_kept_changes_nothing(make_direct: MakeDirect) -> None:
    """The effect has happened: the message is settled, and someone is told."""
    bench = make_direct(handler=lambda _body, _session: object())
    assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
    assert "cannot be kept" in str(bench.errors.seen[0][1])
    assert bench.deliver(message("a", 1)) == [Outcome.DUPLICATE]


def test_the_claim_of_a_dead_process_is_looked_at_ever_less_often(make_direct: MakeDirect) -> None:
    """Its lease may take a minute; a look every quarter of a second would be a unit each."""
    bench = make_direct()
    bench.deliver(message("a", 1))
    change(bench, state="processing", holder="dead", until=SystemClock().now() + LATER, done_at=None)
    delivery = bench._delivery(message("a", 1))
    pauses = []
    for waited in (0.0, 0.4, 2.0, 8.0, 29.0):
        delivery.deferred_since = SystemClock().monotonic() - waited if waited else 0.0
        (verdict,) = bench._run_unit([delivery], set())
        assert verdict.delay is not None
        pauses.append(round(verdict.delay.total_seconds(), 1))
    assert pauses == [0.2, 0.2, 1.0, 4.0, 5.0]
