"""`two_phase`: what each end of a handler leaves in the ledger, and what comes of it when the message comes again."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from oncemq import Done, Envelope, NotDone, Reject, Retry, Unknown
from oncemq.common.clock import SystemClock
from oncemq.common.problems import Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.errors import ConfigError, InvalidPayload
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.purge import CLAIMS, purge
from oncemq.ledger.records import claims
from oncemq.ledger.records.claims import Claims, End, State
from oncemq.message.stored import from_text, to_text
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec
from oncemq_strategies.claims.base import UNKNOWN_EFFECT
from oncemq_strategies.claims.ledger_claims import ClaimBook, Phase
from oncemq_strategies.claims.two_phase import TwoPhase
from support.brokers.embedded_broker import eventually

DEADLINE = 20.0
LATER = timedelta(days=400)

MakeDirect = Callable[..., Bench]


@pytest.fixture
def make_direct(tmp_path: Path) -> Iterator[MakeDirect]:
    """Lend benches of one consumer with this strategy."""
    scope, benches = f"suite.c{uuid4().hex[:8]}", list[Bench]()

    def make(*, handler: Any = None, **options: Any) -> Bench:
        chain = ChainSpec([("two_phase", options)], direct=True)
        benches.append(Bench(f"sqlite:///{tmp_path}/claims.db", chain, scope, handler))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def raising(error: BaseException) -> Callable[..., None]:
    """Return a handler that raises."""

    def handler(_body: Any, _session: Session) -> None:
        raise error

    return handler


def rows(bench: Bench) -> list[Any]:
    """Return what the ledger holds of this consumer."""
    with bench.engine.connect() as connection:
        mine = select(claims.TABLE).where(claims.TABLE.c.consumer == bench.scope)
        return list(connection.execute(mine.order_by(claims.TABLE.c.identity)))


def change(bench: Bench, **values: Any) -> None:
    """Change the consumer's claims behind everyone's back."""
    with bench.engine.begin() as connection:
        mine = update(claims.TABLE).where(claims.TABLE.c.consumer == bench.scope)
        connection.execute(mine.values(**values))


def fail_once(bench: Bench, error: BaseException | None = None) -> None:
    """Leave message 1 of `a` in doubt, and let handlers succeed from now on."""
    bench.handler = raising(error or RuntimeError("the server hung up"))
    assert bench.deliver(message("a", 1)) == [Outcome.RETRY]
    bench.handler = bench.apply


def only(bench: Bench) -> Verdict:
    """Deliver message 1 of `a` and return the verdict."""
    (verdict,) = bench.verdicts(message("a", 1))
    return verdict


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
    assert only(bench).outcome is Outcome.DUPLICATE
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


# The ledger


@pytest.fixture
def book(make_direct: MakeDirect) -> ClaimBook:
    """Lend a book of claims on a fresh ledger."""
    bench = make_direct()
    return ClaimBook(bench.engine, Claims(bench.scope), timedelta(minutes=1), SystemClock())


def envelope(identity: str = "a") -> Envelope:
    """Return a message."""
    return Envelope("b", "t", "g", "key", 1, identity, None, 1, {"x": "ü"}, b"\x00\xff", SystemClock().now())


def test_a_commit_whose_answer_was_lost_is_ours(book: ClaimBook) -> None:
    """The same owner that claims again finds its own claim, and not a rival's."""
    assert book.take([envelope()], "me")["a"].phase is Phase.OURS
    assert book.take([envelope()], "me")["a"].phase is Phase.OURS
    assert book.take([envelope()], "you")["a"].phase is Phase.FOREIGN


def test_a_unit_that_an_earlier_strategy_put_off_claims_nothing(database_url: str) -> None:
    """A lock before it in the list may have put off every message of the unit."""
    engine = make_engine(database_url)
    schema.create(engine, [claims.TABLE])
    book = ClaimBook(engine, Claims("shop.mails"), timedelta(minutes=1), SystemClock())
    assert book.take([], "me") == {}
    engine.dispose()


def test_giving_back_never_deletes_what_is_being_verified(book: ClaimBook) -> None:
    """Anyone who took a claim over must not forget it by giving back what it did not start."""
    book.take([envelope()], "dead")
    book.doubt("a", "dead", "cut off")
    assert book.take([envelope()], "me")["a"].phase is Phase.DOUBTFUL
    book.drop(["a"], "me")
    found = book.find("a")
    assert found is not None
    assert found.state is State.VERIFYING


def test_a_finish_may_be_done_again(book: ClaimBook) -> None:
    """When the answer to the commit was lost, the second try finds it done by itself."""
    book.take([envelope()], "me")
    assert book.finish("a", "me")
    assert book.finish("a", "me")
    assert not book.finish("a", "you")


def test_units_that_claim_at_once_share_a_commit(book: ClaimBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is claimed while a transaction is under way goes into the next one, and each unit gets its own."""
    started, may_go, taken = threading.Event(), threading.Event(), list[int]()
    take = book._claims.take

    def slow(connection: Any, new: Any, until: Any) -> set[str]:
        taken.append(len(list(new)))
        if len(taken) == 1:
            started.set()
            assert may_go.wait(DEADLINE)
        return take(connection, new, until)

    monkeypatch.setattr(book._claims, "take", slow)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(book.take, [envelope("z")], "z")
        assert started.wait(DEADLINE)
        later = [pool.submit(book.take, [envelope(owner), envelope("same")], owner) for owner in "cab"]
        eventually(lambda: len(book._taking._waiting) == 3, "all three wait")
        may_go.set()
        found = [future.result(DEADLINE) for future in (first, *later)]
    assert taken == [1, 4]
    assert all(held[owner].phase is Phase.OURS for held, owner in zip(found, "zcab", strict=True))
    phases = [held["same"].phase for held in found[1:]]
    assert sorted(phases, key=str) == [Phase.FOREIGN, Phase.FOREIGN, Phase.OURS]


def test_ends_that_share_a_commit_have_their_own_answers(book: ClaimBook) -> None:
    """One whose claim is another's now changes nothing about the others, nor about that claim."""
    book.take([envelope("a"), envelope("c")], "me")
    book.take([envelope("b")], "you")
    ends = [End("c", "me", '"done"'), End("b", "me", '"stolen"'), End("a", "me", None, "print")]
    assert book._finish(ends) == [True, False, True]
    found = [book.find(identity) for identity in "abc"]
    assert [claim and (claim.state, claim.result, claim.fingerprint) for claim in found] == [
        (State.DONE, None, "print"),
        (State.PROCESSING, None, None),
        (State.DONE, '"done"', None),
    ]


def test_only_one_takes_a_claim_over(book: ClaimBook) -> None:
    """The second finds it changed."""
    book.take([envelope()], "dead")
    book.doubt("a", "dead", "cut off")
    seen = book.find("a")
    assert seen is not None
    assert [book.take_over(seen, owner) for owner in ("me", "you")] == [True, False]


def test_an_envelope_survives_its_text() -> None:
    """Bytes that are no text, headers and times come back as they were."""
    before = envelope()
    assert from_text(to_text(before)) == before


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


# Reconciling


def strategy_of(bench: Bench) -> TwoPhase:
    """Return the bench's strategy."""
    (strategy,) = bench.strategies
    assert isinstance(strategy, TwoPhase)
    return strategy


@pytest.mark.parametrize(
    ("answer", "told", "left"),
    [
        (Done(), "done", ["done"]),
        (NotDone(), "not done", []),
        (Unknown("?"), "unknown", ["unknown"]),
        (7, "unanswered", ["unknown"]),
    ],
)
def test_reconciling_asks_about_abandoned_claims(
    make_direct: MakeDirect, answer: Any, told: str, left: list[str]
) -> None:
    """Done is done, what is not done may run when it comes, the others stay in doubt."""
    bench = make_direct(verify=lambda _envelope: answer)
    fail_once(bench)
    (found,) = strategy_of(bench).reconcile(bench.engine)
    assert (found.identity, found.answer) == ("a:1", told)
    assert [row.state for row in rows(bench)] == left


def test_reconciling_leaves_living_claims_alone(make_direct: MakeDirect) -> None:
    """Also when a person names one."""
    bench = make_direct(verify=lambda _envelope: Done())
    fail_once(bench)
    change(bench, state="processing", holder="another", until=SystemClock().now() + timedelta(minutes=1))
    assert list(strategy_of(bench).reconcile(bench.engine)) == []
    (found,) = strategy_of(bench).reconcile(bench.engine, identity="a:1", answer=NotDone())
    assert found.answer == "busy"
    assert [row.state for row in rows(bench)] == ["processing"]


def test_a_person_may_know_better(make_direct: MakeDirect) -> None:
    """Without any `verify`, one message is settled as told."""
    bench = make_direct()
    fail_once(bench)
    (found,) = strategy_of(bench).reconcile(bench.engine, identity="a:1", answer=NotDone())
    assert found.answer == "not done"
    assert only(bench).outcome is Outcome.PROCEED


def test_the_background_asks_once_in_a_while(make_direct: MakeDirect) -> None:
    """What remained unknown is not asked about at every look."""
    asked: list[str] = []

    def verify(envelope: Envelope) -> Unknown:
        asked.append(envelope.identity)
        return Unknown()

    bench = make_direct(verify=verify)
    fail_once(bench)
    (task,) = strategy_of(bench).upkeep()
    for _ in range(3):
        assert task.run(bench.engine) is False
    assert asked == ["a:1"]


def test_many_stuck_claims_are_all_asked_about(make_direct: MakeDirect) -> None:
    """More than one step's worth."""
    bench = make_direct(verify=lambda _envelope: Unknown())
    with bench.engine.begin() as connection:
        row = {
            "consumer": bench.scope,
            "key": "k",
            "state": "unknown",
            "holder": "",
            "envelope": to_text(envelope()),
        }
        until = SystemClock().now()
        connection.execute(
            insert(claims.TABLE), [{**row, "identity": f"{n:03}", "until": until} for n in range(50)]
        )
    assert len(list(strategy_of(bench).reconcile(bench.engine))) == 50


# Configuration


def problems(
    facts: Callable[..., ConsumerFacts], scope: Any, options: dict[str, Any], **exceptions: Any
) -> list[tuple[Severity, str]]:
    """Return what `check` says."""
    outside = {"effects": Effects.EXTERNAL, "strategies": ("two_phase",), **exceptions}
    strategy = TwoPhase.build(options, scope)
    return [(finding.severity, finding.text) for finding in strategy.check(facts(**outside))]


def test_a_sound_consumer_has_no_problems(facts: Any, scope: Any) -> None:
    """With `verify` and a database nothing is said."""
    assert problems(facts, scope, {"verify": print}) == []


def test_check_says_what_a_missing_verify_means(facts: Any, scope: Any) -> None:
    """It is allowed, since it is safe, but at every start someone is told."""
    ((severity, text),) = problems(facts, scope, {})
    assert severity is Severity.WARNING
    assert "not tried again but becomes a dead letter" in text


def test_check_needs_a_database(facts: Any, scope: Any) -> None:
    """Claims must be kept somewhere."""
    ((severity, text),) = problems(facts, scope, {"verify": print}, dialect="")
    assert severity is Severity.ERROR
    assert "database" in text


def test_check_warns_of_a_lease_that_makes_messages_wait(facts: Any, scope: Any) -> None:
    """A lease need not be as long as a handler may run."""
    ((severity, text),) = problems(facts, scope, {"verify": print, "lease": "2h"})
    assert severity is Severity.WARNING
    assert "2h" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"verfy": "x:y"}, "did you mean 'verify'"),
        ({"verify": 5}, "5 is not a function"),
        ({"lease": "100ms"}, "before it can be renewed"),
        ({"lease": "soon"}, "soon"),
        ({"fingerprint": ["body."]}, "body."),
    ],
)
def test_options_that_cannot_work_are_refused(scope: Any, options: dict[str, Any], text: str) -> None:
    """Each with words that help."""
    with pytest.raises(ConfigError) as refused:
        TwoPhase.build(options, scope)
    assert text in str(refused.value)
