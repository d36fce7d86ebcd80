"""The book of claims: one owner at a time, whatever is asked or finished at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from oncemq.common.clock import SystemClock
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import claims
from oncemq.ledger.records.claims import Claims, End, State
from oncemq.message.stored import from_text, to_text
from oncemq_strategies.claims.ledger_claims import ClaimBook, Phase
from oncemq_strategies.claims.stored_messages import Finish
from support.benches.two_phase import DEADLINE, MakeDirect, envelope, make_direct
from support.brokers.embedded_broker import eventually

__all__ = ["make_direct"]


# The ledger


@pytest.fixture
def book(make_direct: MakeDirect) -> ClaimBook:
    """Lend a book of claims on a fresh ledger."""
    bench = make_direct()
    return ClaimBook(bench.engine, Claims(bench.scope), timedelta(minutes=1), SystemClock())


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
    assert book.finish_all([Finish("a", "me")]) == [True]
    assert book.finish_all([Finish("a", "me")]) == [True]
    assert book.finish_all([Finish("a", "you")]) == [False]


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
