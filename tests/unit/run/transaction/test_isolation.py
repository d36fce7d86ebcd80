"""What a handler does past its session harms no neighbour, and is never called a duplicate."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.ledger.processed import TABLE as PROCESSED
from oncemq_strategies.unique_key import UniqueKey
from support.effects import Effect, effects, give
from support.units import UnitBench, orders


def hidden_commit(session: Session, number: int) -> None:
    """End the transaction in one of the ways that no event shows."""
    kind = session.connection().dialect.name
    if number == 0:
        driver: Any = session.connection().connection.driver_connection
        driver.commit()
    elif kind == "postgresql":
        session.execute(text("UPDATE shared SET points = points; COMMIT"))
    elif kind in {"mysql", "mariadb"}:
        session.execute(text("EXECUTE IMMEDIATE 'COMMIT'"))
    else:
        session.connection().connection.cursor().executescript("UPDATE shared SET points = points; COMMIT")


@pytest.mark.parametrize("way", [0, 1], ids=["driver", "statement"])
def test_a_hidden_commit_loses_no_neighbour_and_no_record_stays(engine: Engine, way: int) -> None:
    """Neighbours take effect once, the message is a dead letter, and nothing calls it a duplicate afterwards."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            hidden_commit(session, way)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "bad", "c")) == ["applied", "applied", "rejected", "applied"]
    assert sorted(effects(engine)) in (["a", "b", "bad", "c"], ["a", "b", "c"])
    with engine.connect() as connection:
        rows = connection.execute(PROCESSED.select().where(PROCESSED.c.consumer == bench.plan.scope)).all()
    assert sorted(row.identity for row in rows) == ["a", "b", "c"]


def test_a_search_path_stays_with_its_message(engine: Engine) -> None:
    """A message that goes to another schema or database leaves its neighbours and the ledger where they are."""
    if engine.dialect.name == "sqlite":
        return
    elsewhere = (
        "SET search_path = pg_temp" if engine.dialect.name == "postgresql" else "USE information_schema"
    )

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        session.flush()
        if order["id"] == "b":
            session.execute(text(elsewhere))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert bench.run(*orders("d")) == ["applied"]
    assert effects(engine) == ["a", "b", "c", "d"]


def test_a_session_in_another_thread_is_refused(engine: Engine) -> None:
    """Work that a handler leaves to another thread is an error of its message, and no success without effect."""

    def handler(order: dict[str, Any], session: Session) -> None:
        def work() -> None:
            with suppress(Exception):
                give(session, order)

        if order["id"] == "bad":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["SessionOwned"]
    assert effects(engine) == ["a", "b"]


def test_a_session_after_its_handler_is_refused(engine: Engine) -> None:
    """A session that was kept writes nothing in a neighbour's name; the message that kept it is charged."""
    kept: list[Session] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "keeps":
            kept[:] = [session]
        elif kept:
            with suppress(Exception):
                kept[0].add(Effect(order_id="stray", key="k"))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("keeps", "a")) == ["retry", "applied"]
    assert effects(engine) == ["a"]
