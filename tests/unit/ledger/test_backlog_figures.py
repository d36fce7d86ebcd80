"""Figures of a consumer's backlog and of the ledger's size, as metrics show them."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from oncemq.ledger import consumer_summary
from oncemq.ledger.messages import parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.ledger.records import audit
from oncemq.ledger.records.audit import Change
from oncemq.ledger.records.claims import Claims, End, NewClaim, count_in_doubt
from oncemq.ledger.size import stored_bytes
from oncemq.message.envelope import Message

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SCOPE = "shop.mail"


def test_a_claim_is_unknown_when_its_owner_says_so_or_is_gone(engine: Engine) -> None:
    """One that is being worked on is not, nor one that is done, nor one of another consumer."""
    mine, gone = Claims(SCOPE), Claims("shop.other")
    later, before = NOW + timedelta(minutes=1), NOW - timedelta(seconds=1)
    with engine.begin() as connection:
        names = ("doubted", "finished", "running")
        mine.take(connection, [NewClaim(name, "k", name, "") for name in names], later)
        mine.take(connection, [NewClaim("abandoned", "k", "dead", "")], before)
        gone.take(connection, [NewClaim("abandoned", "k", "dead", "")], before)
        assert mine.doubt(connection, "doubted", "doubted", later, reason="no answer")
        assert mine.finish(connection, [End("finished", "finished")], NOW) == [True]
        assert count_in_doubt(connection, SCOPE, NOW) == 2


def test_a_process_whose_clock_is_ahead_doubts_no_claim(engine: Engine) -> None:
    """A lease that runs by the database's clock is no alert, whatever the process's own clock says."""
    now = datetime.now(UTC)
    with engine.begin() as connection:
        Claims(SCOPE).take(connection, [NewClaim("running", "k", "alive", "")], now + timedelta(hours=1))
        assert count_in_doubt(connection, SCOPE, now + timedelta(hours=2)) == 0


def test_the_oldest_parked_message_is_known_by_its_consumer(engine: Engine) -> None:
    """Number and beginning of the wait are those of one consumer; without any there is no beginning."""
    with engine.begin() as connection:
        for scope, ages in ((SCOPE, (5, 9)), ("shop.other", (20,))):
            rows = [
                Parked(
                    0,
                    "a",
                    f"a:{age}",
                    age,
                    False,
                    Message("t", b"{}"),
                    "",
                    NOW - timedelta(minutes=age),
                    None,
                )
                for age in ages
            ]
            parking.add(connection, scope, rows)
        assert consumer_summary.parked(connection, SCOPE) == (2, NOW - timedelta(minutes=9))
        assert consumer_summary.parked(connection, "shop.idle") == (0, None)


def _size(engine: Engine) -> int:
    with engine.connect() as connection:
        if engine.dialect.name in {"mysql", "mariadb"}:
            connection.execute(text("ANALYZE TABLE oncemq_audit")).all()
        return stored_bytes(connection)


def test_the_size_grows_with_the_ledger(engine: Engine) -> None:
    """Two megabytes of rows make it larger by at least one."""
    before = _size(engine)
    assert before > 0
    with engine.begin() as connection:
        changes = [
            Change("shop", SCOPE, "pause", "ann", NOW, why=f"{number} " * 300) for number in range(1500)
        ]
        audit.add(connection, changes)
    assert _size(engine) > before + 1_000_000


def test_tables_of_the_app_are_no_part_of_the_size(engine: Engine) -> None:
    """Only SQLite has one file for everything."""
    before = _size(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER, note TEXT)"))
        connection.execute(
            text("INSERT INTO orders (id, note) VALUES (:id, :note)"),
            [{"id": number, "note": "x" * 1000} for number in range(1000)],
        )
    assert (_size(engine) == before) is (engine.dialect.name != "sqlite")
