"""A handler whose own function changes settings of the connection harms no neighbour, and the ledger finds its tables."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text
from sqlalchemy.orm import Session

from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.engine.transaction.connection_watch import install
from oncemq.engine.transaction.setting_routines import LOOK_AGAIN_AFTER, names_that_set, setting_routines
from oncemq.ledger.records.states import TABLE as STATES
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import effects, give
from support.units import UnitBench, orders

_POSTGRESQL = (
    "CREATE SCHEMA {there}",
    (
        "CREATE FUNCTION {there}.tenant(who text) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM set_config('app.tenant', who, true); RETURN who; END $$"
    ),
    (
        "CREATE FUNCTION {there}.kept(who text) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM set_config('app.tenant', who, false); RETURN who; END $$"
    ),
    (
        "CREATE FUNCTION {there}.enter(who text) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM set_config('search_path', '{there}', true); RETURN who; END $$"
    ),
)
_MYSQL = (
    "CREATE DATABASE {there}",
    (
        "CREATE FUNCTION {there}.tenant(who VARCHAR(20)) RETURNS VARCHAR(20) NOT DETERMINISTIC NO SQL "
        "BEGIN SET @tenant = who; RETURN who; END"
    ),
    (
        "CREATE FUNCTION {there}.kept(who VARCHAR(20)) RETURNS VARCHAR(20) NOT DETERMINISTIC NO SQL "
        "BEGIN SET SESSION lc_time_names = 'de_DE'; RETURN who; END"
    ),
)
_ASKED = {
    "postgresql": "SELECT coalesce(current_setting('app.tenant', true), '')",
    "mysql": "SELECT concat(coalesce(@tenant, ''), if(@@lc_time_names = 'en_US', '', @@lc_time_names))",
}


def kind_of(engine: Engine) -> str:
    """Return the database's name; MariaDB and MySQL are one."""
    return "postgresql" if engine.dialect.name == "postgresql" else "mysql"


@pytest.fixture
def there(engine: Engine) -> Iterator[str]:
    """Return a schema or database with functions that set something, and with tables named like the ledger's."""
    if engine.dialect.name == "sqlite":
        yield ""  # it has no functions of its own
        return
    name, postgresql = f"t{uuid.uuid4().hex[:10]}", kind_of(engine) == "postgresql"
    ours = [table for table in inspect(engine).get_table_names() if table.startswith("oncemq_")]
    like = "(LIKE {} INCLUDING ALL)" if postgresql else "LIKE {}"
    with engine.begin() as connection:
        for statement in _POSTGRESQL if postgresql else _MYSQL:
            connection.execute(text(statement.format(there=name)))
        for table in ours:
            connection.execute(text(f"CREATE TABLE {name}.{table} {like.format(table)}"))
    engine.dispose()  # connections know for a while which functions there were
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE" if postgresql else f"DROP DATABASE {name}"))


@pytest.mark.parametrize("function", ["tenant", "kept"])
def test_what_a_function_sets_stays_with_its_message(engine: Engine, there: str, function: str) -> None:
    """A message that sets something through a function of the database's user is alone with it."""
    if not there:
        return
    seen = {}

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "b":
            session.execute(text(f"SELECT {there}.{function}('x')"))
        seen[order["id"]] = bool(session.execute(text(_ASKED[kind_of(engine)])).scalar_one())

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert bench.run(*orders("d")) == ["applied"]
    assert seen == {"a": False, "b": True, "c": False, "d": False}
    assert effects(engine) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("way", ["statement", "function"])
def test_what_goes_elsewhere_takes_no_record_along(engine: Engine, there: str, way: str) -> None:
    """Where a handler goes to a place with tables of the same names, the ledger's next statements find its own ones."""
    if kind_of(engine) == "postgresql":
        leave = f"SET search_path = {there}" if way == "statement" else f"SELECT {there}.enter('x')"
    elif way == "function" or not there:
        return  # a stored function cannot leave its database
    else:
        leave = f"USE {there}"

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        session.flush()
        if order["id"] == "b":
            session.execute(text(leave))

    bench = UnitBench(engine, handler, (StateMachine, {"to": "body.to", "states": ["new", "paid"]}))
    paid = orders("a", "b", "c", to="paid")
    assert bench.run(*paid) == ["applied"] * 3
    assert bench.run(*paid) == ["duplicate"] * 3
    assert effects(engine) == ["a", "b", "c"]
    with engine.connect() as connection:
        strays = connection.execute(text(f"SELECT count(*) FROM {there}.{STATES.name}")).scalar_one()
    assert strays == 0


def test_what_the_ledger_stores_means_what_it_says_whatever_a_handler_set(engine: Engine, there: str) -> None:
    """Keys are stored as they are where a handler has changed the connection's character set and time zone."""
    if not there:
        return
    postgresql = kind_of(engine) == "postgresql"
    changes = (
        ("SET client_encoding = latin1", "SET TIME ZONE 'Asia/Tokyo'")
        if postgresql
        else ("SET NAMES latin1", "SET time_zone = '+09:00'")
    )

    def handler(order: dict[str, Any], session: Session) -> None:
        del order
        for change in changes:
            session.execute(text(change))

    bench = UnitBench(engine, handler, (StateMachine, {"to": "body.to", "states": ["new", "paid"]}))
    assert bench.run(*orders("a", key="Zoë", to="paid")) == ["applied"]
    with engine.connect() as connection:
        rows = connection.execute(STATES.select().where(STATES.c.consumer == bench.plan.scope)).all()
        now = connection.execute(
            text("SELECT now()" if postgresql else "SELECT utc_timestamp()")
        ).scalar_one()
    (row,) = rows
    assert row.key == "Zoë"
    assert abs(row.changed_at.replace(tzinfo=UTC) - now.replace(tzinfo=UTC)) < timedelta(minutes=5)


def test_a_callers_transaction_ends_with_the_ledgers_own_tables(engine: Engine, there: str) -> None:
    """What is stored at the end of a lent transaction goes to the ledger, wherever the caller has gone."""
    if not there:
        return
    install(engine)
    key = uuid.uuid4().hex
    loan = CallerTransaction(engine)
    postgresql = kind_of(engine) == "postgresql"
    loan.session.execute(text(f"SET search_path = {there}" if postgresql else f"USE {there}"))
    row = {"consumer": "shop.loan", "key": key, "state": "new", "changed_at": datetime.now(UTC)}
    loan.finish(lambda connection: connection.execute(STATES.insert().values(row)))
    with engine.connect() as connection:
        assert connection.execute(STATES.select().where(STATES.c.key == key)).one().state == "new"


@pytest.mark.parametrize(
    ("dialect", "sources", "found"),
    [
        ("postgresql", {"a": "BEGIN PERFORM set_config('x', 'y', true); END"}, {"a"}),
        ("postgresql", {"a": "BEGIN UPDATE t SET x = 1; x := 2; END"}, set()),
        (
            "postgresql",
            {"a": "BEGIN -- why\n SET LOCAL role = 'x'; END", "B": "SELECT a(1)", "c": "SELECT 1"},
            {"a", "b"},
        ),
        ("postgresql", {"a": "BEGIN EXECUTE 'S' || 'ET x = 1'; END"}, {"a"}),
        ("postgresql", {"a": "SELECT b(); SELECT '--', set_config('x', 'y', false)"}, {"a"}),
        ("mysql", {"a": "BEGIN DECLARE x, y INT; SET x = 1; SET y = 2; RETURN x; END"}, set()),
        ("mysql", {"a": "BEGIN SET time_zone = '+01:00'; RETURN 1; END"}, {"a"}),
        ("mysql", {"a": "BEGIN SET @x = 1; RETURN 1; END", "b": "RETURN a()"}, {"a", "b"}),
        ("mysql", {"a": None, "b": "RETURN 1"}, {"a"}),
    ],
)
def test_functions_that_set_are_known_by_their_text(
    dialect: str, sources: dict[str, str | None], found: set[str]
) -> None:
    """What sets something itself, through another function, or cannot be read, is found; variables of its own are not settings."""
    assert names_that_set(sources.items(), dialect) == found


def test_a_function_that_is_changed_is_looked_at_again(engine: Engine, there: str) -> None:
    """A connection that knows a function as harmless asks again after a while."""
    if not there:
        return
    name = f"{there}_late"
    postgresql = kind_of(engine) == "postgresql"
    with engine.begin() as connection:
        before = setting_routines(connection, 0.0)
        if postgresql:
            connection.exec_driver_sql(
                f"CREATE FUNCTION {there}.{name}() RETURNS text LANGUAGE sql AS $$ SELECT set_config('a.b', 'c', true) $$"
            )
        else:
            connection.exec_driver_sql(
                f"CREATE FUNCTION {there}.{name}() RETURNS INT NOT DETERMINISTIC NO SQL BEGIN SET @late = 1; RETURN 1; END"
            )
        assert name not in before | setting_routines(connection, LOOK_AGAIN_AFTER - 1)
        assert name in setting_routines(connection, LOOK_AGAIN_AFTER)
