"""What becomes of messages can be read again, whatever the messages are made of."""

from datetime import UTC, datetime

from sqlalchemy import Engine

from oncemq.ledger.records import history
from oncemq.ledger.records.history import MAX_REASON, HistoryRow

NOW = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)


def row(key: str, reason: str = "came late", attempt: int = 1) -> HistoryRow:
    """Return a row about the key."""
    return HistoryRow("shop.points", "order.paid", key, f"{key}:1", "stale", reason, attempt, NOW)


def test_rows_come_back_as_they_were_stored(engine: Engine) -> None:
    """Quotes, line breaks, letters of any script and microseconds survive, in order."""
    rows = [row('o"\\1\n'), row('o"\\1\n', "später – 後で", attempt=7), row("another")]
    with engine.begin() as connection:
        history.add(connection, rows)
    with engine.connect() as connection:
        assert history.of_key(connection, 'o"\\1\n') == rows[:2]


def test_what_no_database_keeps_is_replaced(engine: Engine) -> None:
    """NUL and lone surrogates are replaced and long reasons cut: history never fails a unit."""
    with engine.begin() as connection:
        history.add(connection, [row("k", "a\0b\udc80" + "é" * MAX_REASON)])
    with engine.connect() as connection:
        [found] = history.of_key(connection, "k")
    assert found.reason.startswith("a\N{REPLACEMENT CHARACTER}b?éé")
    assert len(found.reason.encode()) <= MAX_REASON


def test_no_rows_are_no_statement(engine: Engine) -> None:
    """A unit in which everything was applied writes no history."""
    with engine.begin() as connection:
        history.add(connection, [])
    with engine.connect() as connection:
        assert history.of_key(connection, "k") == []
