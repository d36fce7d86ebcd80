"""Violated unique constraints of the user's own, as real databases raise them."""

from collections.abc import Iterator

import psycopg
import pymysql
import pytest
from pymysql.constants import ER
from sqlalchemy import (
    Column,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from oncemq import UniqueViolation
from oncemq.engine.base.error_verdicts import describe
from oncemq.errors import OnceMQError
from oncemq.ledger.database.engine import make_engine
from oncemq.retry.classify import Fault, classify, is_unique_violation

TABLE = Table(
    "payments",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("order_id", String(20), nullable=False),
    Column("payment_no", Integer, nullable=False),
    Column("card", String(20)),
    UniqueConstraint("order_id", "payment_no", name="one_payment"),
    Index("one_card", "card", unique=True),
    mysql_engine="InnoDB",
)
ABOUT_NAMES = {
    *("DUP_FIELDNAME", "DUP_KEYNAME", "DUP_ARGUMENT", "DUPLICATED_VALUE_IN_TYPE", "XAER_DUPID"),
    *("SP_DUP_PARAM", "SP_DUP_VAR", "SP_DUP_COND", "SP_DUP_CURS", "SP_DUP_HANDLER"),
}
ROW = {"id": 1, "order_id": "o1", "payment_no": 2, "card": "c1"}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine on a database with one payment."""
    engine = make_engine(database_url)
    TABLE.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(TABLE).values(ROW))
    yield engine
    engine.dispose()


@pytest.mark.parametrize(
    ("row", "columns", "values"),
    [
        ({**ROW, "order_id": "o2", "card": None}, ("id",), ("1",)),
        ({**ROW, "id": 2, "card": None}, ("order_id", "payment_no"), ("o1", "2")),
        ({**ROW, "id": 2, "order_id": "o2"}, ("card",), ("c1",)),
    ],
    ids=["primary-key", "constraint", "index"],
)
def test_every_database_tells_table_columns_and_values(
    engine: Engine, row: dict[str, object], columns: tuple[str, ...], values: tuple[str, ...]
) -> None:
    """Primary key, constraint and index; SQLite does not say the values."""
    with pytest.raises(UniqueViolation) as caught, engine.begin() as connection:
        connection.execute(insert(TABLE).values(row))
    error = caught.value
    assert (error.table, error.columns) == ("payments", columns)
    assert error.values == (() if engine.dialect.name == "sqlite" else values)
    assert classify(error) is Fault.DATA


def test_an_update_and_many_rows_are_told_as_well(engine: Engine) -> None:
    """Whatever statement it was."""
    with engine.begin() as connection:
        connection.execute(insert(TABLE).values({**ROW, "id": 2, "order_id": "o2", "card": "c2"}))
    for statement, rows in (
        (update(TABLE).where(TABLE.c.id == 2).values(card="c1"), None),
        (insert(TABLE), [{**ROW, "id": n, "payment_no": n + 7} for n in (3, 4)]),
    ):
        with pytest.raises(UniqueViolation) as caught, engine.begin() as connection:
            connection.execute(statement, rows)
        assert (caught.value.table, caught.value.columns) == ("payments", ("card",))


def test_it_is_still_the_error_that_users_know(engine: Engine) -> None:
    """In a savepoint it can be caught as SQLAlchemy's or as ours, and the transaction goes on."""
    for kind in (IntegrityError, UniqueViolation, OnceMQError):
        with Session(engine) as session, session.begin():
            with pytest.raises(kind), session.begin_nested():
                session.execute(insert(TABLE).values(ROW))
            assert session.scalars(select(TABLE.c.id)).all() == [1]


def test_other_violations_stay_as_they_are(engine: Engine) -> None:
    """A NULL where none may be is no unique violation."""
    with pytest.raises(IntegrityError) as caught, engine.begin() as connection:
        connection.execute(insert(TABLE).values({**ROW, "id": 2, "order_id": None}))
    assert not isinstance(caught.value, UniqueViolation)


def test_every_code_for_a_duplicate_is_known() -> None:
    """No driver knows a further one: those of MySQL left out are about names of columns, keys and tables."""
    named = {name for name in vars(ER) if "DUP" in name and isinstance(getattr(ER, name), int)}
    about_rows = {
        name for name in named if is_unique_violation(pymysql.err.IntegrityError(getattr(ER, name), ""))
    }
    assert about_rows == {"DUP_KEY", "DUP_ENTRY", "DUP_UNIQUE", "DUP_ENTRY_WITH_KEY_NAME"}.intersection(named)
    assert named - about_rows <= ABOUT_NAMES
    assert is_unique_violation(psycopg.errors.UniqueViolation())


def test_its_text_holds_no_value(engine: Engine) -> None:
    """It stands in dead letters and logs, where a card's number is no one's business."""
    with pytest.raises(UniqueViolation) as caught, engine.begin() as connection:
        connection.execute(insert(TABLE).values({**ROW, "id": 2, "card": None}))
    text = "UniqueViolation: payments has a row with the same order_id, payment_no already"
    assert describe(caught.value) == text
