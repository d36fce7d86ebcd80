"""Anyone who lost a request to another can neither finish nor release it, on each database."""

from datetime import timedelta

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from oncemq.errors import ConfigError, RequestInProgress
from oncemq.idempotent_requests import Answer, RequestLedger
from oncemq.idempotent_requests.ledger import Claim
from oncemq.ledger.records.requests import State
from oncemq.testing.fake_clock import FakeClock

DONE = Answer(200, (), b"done")


def claimed(ledger: RequestLedger) -> Claim:
    """Return the claim of one request."""
    claim = ledger.admit("identity", "content", State.RUNNING)
    assert isinstance(claim, Claim)
    return claim


def finished(ledger: RequestLedger, claim: Claim) -> bool:
    """Finish in a transaction of its own; returns whether that was allowed."""
    with ledger.engine.begin() as connection:
        return ledger.finish(connection, claim, DONE)


def test_an_overtaken_owner_has_no_say(ledger: RequestLedger, clock: FakeClock) -> None:
    """It finishes, releases and gives up nothing, while the other still runs and afterwards."""
    late = claimed(ledger)
    clock.advance(timedelta(seconds=61))
    other = claimed(ledger)
    assert not finished(ledger, late)
    ledger.release(late)
    ledger.give_up(late)
    with pytest.raises(RequestInProgress):
        ledger.admit("identity", "content", State.RUNNING)
    assert finished(ledger, other)
    ledger.release(other)
    assert ledger.admit("identity", "content", State.RUNNING) == DONE


@pytest.mark.parametrize("inside", [False, True], ids=["AsyncEngine", "sync_engine"])
def test_an_engine_for_event_loops_is_refused(postgresql_url: str, *, inside: bool) -> None:
    """Before any request, in words that say what to give."""
    made = create_async_engine(make_url(postgresql_url).set(drivername="postgresql+psycopg"))
    with pytest.raises(ConfigError, match=r"(?s)plain engine.*create_engine"):
        RequestLedger(made.sync_engine if inside else made, "shop")
