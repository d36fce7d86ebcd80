"""Purge of bodies whose time is over."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, insert

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox, parking
from oncemq.message.claims.claim_check import ClaimCheck
from oncemq.message.claims.store import MARKER, Store
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.claims import BodyPurge

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands."""
    return FakeClock()


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """Lend a database with the ledger."""
    engine = make_engine(sqlite_database)
    schema.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def claims(clock: FakeClock) -> ClaimCheck:
    """Return a store with two bodies of now, which nothing refers to: their process died before it sent them."""
    claims = ClaimCheck(Store(f"memory://{uuid4().hex}"), over=1, keep=3 * DAY, clock=clock)
    claims.outgoing(OutgoingMessage(b"first"))
    claims.outgoing(OutgoingMessage(b"later", due_at=clock.now() + 10 * DAY))
    return claims


def purge(claims: ClaimCheck, engine: Engine) -> int:
    """Purge all that is due; return how many folders are left."""
    task = BodyPurge(claims, "shop", ["shop.pay"], [engine])
    while task(engine):
        pass
    return len([each for each in claims.store.folders() if each != MARKER])


def test_bodies_go_when_their_time_is_over(claims: ClaimCheck, engine: Engine, clock: FakeClock) -> None:
    """Also those that no message refers to; later ones stay."""
    assert purge(claims, engine) == 2
    clock.advance(5 * DAY)
    assert purge(claims, engine) == 1
    clock.advance(10 * DAY)
    assert purge(claims, engine) == 0


@pytest.mark.parametrize("app", ["shop", "other"])
def test_bodies_of_messages_in_the_outbox_stay(
    claims: ClaimCheck, engine: Engine, clock: FakeClock, app: str
) -> None:
    """However long their broker is away; those of other apps do not count."""
    with engine.begin() as connection:
        outbox.add(
            connection,
            outbox.Claim(app, "me", clock.now()),
            "shop.pay",
            [("orders", OutgoingMessage(b"{}", message_id="1"))],
            clock.now(),
        )
    clock.advance(30 * DAY)
    assert purge(claims, engine) == (2 if app == "shop" else 0)


def test_bodies_of_parked_messages_stay(claims: ClaimCheck, engine: Engine, clock: FakeClock) -> None:
    """Such as those behind a gap, or held by a key."""
    row = {
        "consumer": "shop.pay",
        "key": "a",
        "identity": "a",
        "held": True,
        "topic": "orders",
        "attempt": 1,
        "envelope": "[]",
        "body": b"{}",
        "parked_at": clock.now(),
        "reason": "",
    }
    with engine.begin() as connection:
        connection.execute(insert(parking.TABLE).values(**row))
    clock.advance(30 * DAY)
    assert purge(claims, engine) == 2
