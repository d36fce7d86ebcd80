"""What failed and waits for its retry is known: each try is a row of the history."""

from datetime import timedelta
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq import Retry
from oncemq.ledger.records import history
from oncemq.ledger.records.history import HistoryRow
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.program import eventually
from support.database.databases import database, engine
from support.effects import give
from support.engine import make_app, make_consumer, running
from support.units import build

__all__ = ["database", "engine"]


def rows(engine: Engine, key: str) -> list[HistoryRow]:
    """Return what the history knows about a key."""
    with engine.connect() as connection:
        return history.of_key(connection, key)


def test_each_try_that_failed_is_a_row(engine: Engine, fresh: str) -> None:
    """Number, time and error of each, also while the next one is still to come; and the dead letter at last."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "later":
            raise Retry("the customer is not there yet", after=3600)
        raise ValueError("no such user")

    adapter = ScriptedAdapter()
    plan = make_consumer(
        handler,
        [build(UniqueKey, engine, fresh)],
        name=fresh,
        retry=RetryPolicy(attempts=2, first=timedelta(milliseconds=10)),
    )
    later, bad = f"{fresh}-later", f"{fresh}-bad"
    with running(make_app(adapter, engine, plan)):
        adapter.deliver(f'{{"id": "later", "key": "{later}"}}'.encode())
        adapter.deliver(f'{{"id": "bad", "key": "{bad}"}}'.encode())
        eventually(lambda: rows(engine, later) and len(rows(engine, bad)) == 1, "the tries")
    [row] = rows(engine, later)
    assert (row.outcome, row.attempt, row.reason) == ("retry", 1, "the customer is not there yet")
    [row] = rows(engine, bad)
    assert (row.outcome, row.attempt, row.reason) == ("retry", 1, "ValueError: no such user")
